"""A residual network as one writes them, on stripes; with the library or by command.

diffprune inspect examples/resnet.py:ResNet --input 1,3,16,16
diffprune train examples/resnet.py:stripes --epochs 5 --out runs/stripes
diffprune export runs/stripes --to onnx
"""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import diffprune as dp
from diffprune import lab


class Block(nn.Module):
    """Two convolutions and a shortcut, as in every ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Add what the block has to say."""
        out = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(out)) + self.shortcut(x)).relu()


class ResNet(nn.Module):
    """A stem, three stages, an average, a linear layer."""

    def __init__(self, width: int = 16, classes: int = 2) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        )
        self.stages = nn.Sequential(
            Block(width, width),
            Block(width, 2 * width, 2),
            Block(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores before the softmax."""
        return self.head(self.stages(self.stem(images).relu()).mean((2, 3)))


def make_stripes(count: int) -> TensorDataset:
    """Noisy images with horizontal or with vertical stripes, and which."""
    labels = torch.arange(count) % 2
    wave = (torch.arange(16) * 1.5).sin().expand(16, 16)
    clean = torch.where(labels.view(-1, 1, 1, 1).bool(), wave, wave.T)
    return TensorDataset(clean + torch.randn(count, 3, 16, 16), labels)


def stripes(recipe: lab.Recipe) -> lab.Task:
    """What `diffprune train` needs: a model and data."""
    return lab.Task(
        model=ResNet(),
        train=DataLoader(make_stripes(320), batch_size=recipe.batch_size, shuffle=True),
        test=DataLoader(make_stripes(100), batch_size=100),
    )


def main() -> None:
    """Do the same with the library."""
    recipe = lab.Recipe(
        name="stripes", epochs=4, batch_size=16, lr=3e-3, gate_lr=1e-2,
        budget={"macs": 0.3},
    )  # fmt: skip
    small = lab.train(stripes, recipe, out="runs/stripes")
    lab.train(stripes, recipe.as_dense(), out="runs/stripes-dense")
    for folder in ("runs/stripes-dense", "runs/stripes"):
        run = lab.read_run(folder)
        print(run.name, run.outcome)
    images = torch.randn(2, 3, 16, 16)
    print(dp.find_groups(small, images))
    dp.to_exported_program(small, images, "runs/stripes/small.pt2")


if __name__ == "__main__":
    main()
