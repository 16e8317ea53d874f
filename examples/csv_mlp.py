"""A table in a CSV file, and a network that reads it; with the library or by command.

python examples/csv_mlp.py                       # writes the table, trains, exports
diffprune train examples/csv_mlp.py:flowers --epochs 5
"""

import csv
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import diffprune as dp
from diffprune import lab

TABLE = Path("flowers.csv")
COLUMNS = ["sepal_length", "sepal_width", "petal_length", "petal_width", "kind"]


def write_table(count: int = 600) -> None:
    """Make up flowers of three kinds; a table of your own takes its place."""
    kinds = torch.arange(count) % 3
    sizes = torch.randn(count, 4) * 0.4 + torch.tensor([5.8, 3.0, 3.7, 1.2])
    sizes[:, 2:] += kinds.unsqueeze(1) * torch.tensor([2.0, 0.9])
    rows = zip(sizes.tolist(), kinds.tolist(), strict=True)
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([*(f"{size:.2f}" for size in row), kind] for row, kind in rows)


def read_table() -> TensorDataset:
    """Every column but the last is an input; each is brought to mean 0, deviation 1."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = [list(map(float, row.values())) for row in csv.DictReader(file)]
    table = torch.tensor(rows)
    inputs = (table[:, :-1] - table[:, :-1].mean(0)) / table[:, :-1].std(0)
    return TensorDataset(inputs, table[:, -1].long())


def flowers(recipe: lab.Recipe) -> lab.Task:
    """What `diffprune train` needs: a model and data."""
    train, test = random_split(read_table(), [0.8, 0.2])
    return lab.Task(
        model=nn.Sequential(
            nn.Linear(4, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, 3),
        ),
        train=DataLoader(train, batch_size=recipe.batch_size, shuffle=True),
        test=DataLoader(test, batch_size=len(test)),
    )


def main() -> None:
    """Do the same with the library."""
    torch.manual_seed(0)
    write_table()
    recipe = lab.Recipe(
        name="flowers", epochs=8, batch_size=16, lr=3e-3, gate_lr=1e-2,
        budget={"macs": 0.3},
    )  # fmt: skip
    small = lab.train(flowers, recipe, out="runs/flowers")
    lab.train(flowers, recipe.as_dense(), out="runs/flowers-dense")
    for folder in ("runs/flowers-dense", "runs/flowers"):
        run = lab.read_run(folder)
        print(run.name, run.outcome)
    dp.to_exported_program(small, torch.randn(2, 4), "runs/flowers/small.pt2")


if __name__ == "__main__":
    main()
