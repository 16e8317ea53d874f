"""The demonstration behind `diffprune demo`: a network trained dense and pruned.

`train_both` trains the two, `deliver` saves, exports and reports on what came out, and
`Demo.view` shows the two side by side in a terminal.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table

from diffprune._core.files import write_text
from diffprune._core.interleaved import one_thread
from diffprune._export import to_onnx
from diffprune._io import save_pruned
from diffprune.errors import ArgumentError, MissingPackageError
from diffprune.lab.digits import digits_recipe, digits_task
from diffprune.lab.report import write_report
from diffprune.lab.runs.compare import side_by_side
from diffprune.lab.runs.import_spec import spell
from diffprune.lab.runs.rebuild import rebuild
from diffprune.lab.runs.records import Run, read_run
from diffprune.lab.training.loop import OnEpoch, train
from diffprune.lab.training.recipe import Recipe

EPOCHS: Final = 20
_USES: Final = {
    "small": "the small network, for `diffprune.load_pruned`",
    "small.onnx": "the same for ONNX Runtime",
    "report.html": "all of this on a page, for a browser",
    "summary.json": "the numbers above",
}


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo leaves.

    Attributes:
        dense: The run without gates.
        pruned: The same with gates.
        seconds: It all took.
        files: What was written beside the run folders.
        missing: Why something was not.
    """

    dense: Run
    pruned: Run
    seconds: float
    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        recipe, worst = self.pruned.recipe, self.pruned.worst_certificate()
        return {
            "command": f"diffprune demo --seed {recipe.seed} --epochs {recipe.epochs}",
            "seed": recipe.seed,
            "dense": self.dense.to_dict(),
            "pruned": self.pruned.to_dict(),
            "certificate": None if worst is None else str(worst),
            "seconds": round(self.seconds, 1),
            "environment": dict(self.pruned.environment),
            "files": [str(path) for path in self.files],
            "missing": list(self.missing),
        }

    def view(self) -> Iterator[RenderableType]:
        """Both networks side by side, the proof of the removals, the files."""
        yield side_by_side([self.dense, self.pruned])
        worst = self.pruned.worst_certificate()
        if worst is None:
            yield "Nothing was removed: train for longer, with `--epochs`."
        else:
            yield f"{len(self.pruned.removals)} removals, each verified: {worst}"
        out = self.pruned.folder.parent
        yield f"{self.seconds:.0f} seconds. Written to {out}:"
        table = Table(box=None, pad_edge=False, show_header=False)
        for path in self.files:
            table.add_row(f"  {path.name}", _USES[path.name])
        for reason in self.missing:
            table.add_row("  left out", reason.replace("\n", " "))
        yield table


def recipes(*, seed: int, epochs: int) -> dict[str, Recipe]:
    """What the two networks are trained with: the same, but for the gates."""
    pruned = replace(digits_recipe(seed), name="pruned", epochs=epochs)
    return {"dense": replace(pruned.as_dense(), name="dense"), "pruned": pruned}


def train_both(
    out: Path, *, seed: int, epochs: int, on_epoch: Mapping[str, OnEpoch]
) -> None:
    """Train both networks into run folders in `out`, over those of an earlier demo.

    Equal seeds give equal networks, whatever the number of threads: sums depend on how
    many threads share them, so there is one. The global random state is left as it was.

    Args:
        out: Directory.
        seed: Of both networks.
        epochs: Of both networks.
        on_epoch: For "dense" and "pruned", what to call after every epoch.

    Raises:
        ArgumentError: If there is nothing to train or nowhere to write, or something
            else than an earlier demo is there.
        MissingPackageError: If scikit-learn is not installed.
    """
    both = recipes(seed=seed, epochs=epochs)
    for name in both:
        _check_ours(out / name)
    with one_thread():
        for name, recipe in both.items():
            shutil.rmtree(out / name, ignore_errors=True)
            train(digits_task, recipe, out=out / name, on_epoch=on_epoch[name])


def _check_ours(folder: Path) -> None:
    """Refuse to delete what no earlier demo has left."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        run = read_run(folder)
    except ArgumentError:
        run = None
    is_ours = run is not None and run.task == spell(digits_task, folder)
    if run is None or not is_ours or run.recipe.name != folder.name:
        raise ArgumentError(
            f"`{folder}` would be replaced, and no earlier demo has left it.\n"
            "Name another directory with `--out`."
        )


def deliver(out: Path, *, seconds: Callable[[], float]) -> Demo:
    """Save, export and report on what `train_both` has left in `out`.

    What needs a package that is not installed is left out, and `Demo.missing` says so.

    Args:
        out: Directory.
        seconds: How long it has taken so far.
    """
    dense, pruned = out / "dense", out / "pruned"
    models = rebuild(pruned)
    files, missing = [save_pruned(models.small, out / "small")], list[str]()
    optional: list[Callable[[], Path]] = [
        lambda: to_onnx(models.small, models.inputs[:2], out / "small.onnx"),
        lambda: write_report([dense, pruned], out / "report.html"),
    ]
    for write in optional:
        try:
            files.append(write())
        except MissingPackageError as error:
            missing.append(str(error))
    summary = out / "summary.json"
    demo = Demo(
        dense=read_run(dense),
        pruned=read_run(pruned),
        seconds=seconds(),
        files=(*files, summary),
        missing=tuple(missing),
    )
    write_text(summary, json.dumps(demo.to_dict(), indent=2) + "\n")
    return demo
