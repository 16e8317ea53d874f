"""`diffprune export`: the network of a run as a file for other programs."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from diffprune.lab.cli.options import AsJson, RunFolder, TaskOfRun, Trust, check_runs
from diffprune.lab.cli.output import said_plainly, say, show, show_json, with_examples

if TYPE_CHECKING:
    from diffprune.lab.runs.rebuild import Models


class Format(StrEnum):
    """What a network can be written as."""

    ONNX = "onnx"
    PT2 = "pt2"
    SAFETENSORS = "safetensors"


@with_examples(
    "diffprune export runs/mine --to onnx",
    "diffprune export runs/mine --to pt2 --out small.pt2",
    "diffprune export runs/mine --to safetensors --out small",
)
def export(
    run: RunFolder,
    *,
    to: Annotated[
        Format,
        typer.Option(
            help="`onnx` for ONNX Runtime and others, `pt2` for `torch.export.load`, "
            "`safetensors` for `diffprune.load_pruned`."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File, or folder for safetensors; by default `small` in the run."
        ),
    ] = None,
    task: TaskOfRun = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Write the small network of a finished run for another program.

    The file is compared with the network on test data, at several batch sizes, before
    it gets its name.
    """
    with said_plainly():
        check_runs(run)
    from diffprune.lab.runs.rebuild import rebuild  # noqa: PLC0415 - imports torch

    with said_plainly():
        models = rebuild(run, task, trust=trust)
        path = _WRITERS[to](models, out or run / _NAMES[to])
    size = sum(file.stat().st_size for file in _files(path))
    if as_json:
        show_json({"format": to.value, "path": str(path), "bytes": size})
        return
    show(f"Written to {path}: {size:,} bytes.")
    say(_USE[to].format(path=path))


def _to_onnx(models: "Models", path: Path) -> Path:
    from diffprune._export import to_onnx  # noqa: PLC0415 - imports torch

    return to_onnx(models.small, models.inputs[:2], path)


def _to_pt2(models: "Models", path: Path) -> Path:
    from diffprune._export import to_exported_program  # noqa: PLC0415 - imports torch

    to_exported_program(models.small, models.inputs[:2], path)
    return path


def _to_safetensors(models: "Models", path: Path) -> Path:
    from diffprune._io import save_pruned  # noqa: PLC0415 - imports torch
    from diffprune.lab.runs.folder import check_holds_no_run  # noqa: PLC0415 - as above

    check_holds_no_run(path)
    return save_pruned(models.small, path)


def _files(path: Path) -> list[Path]:
    return list(path.iterdir()) if path.is_dir() else [path]


_NAMES: Final = {
    Format.ONNX: "small.onnx",
    Format.PT2: "small.pt2",
    Format.SAFETENSORS: "small",
}
_WRITERS: Final[dict[Format, Callable[["Models", Path], Path]]] = {
    Format.ONNX: _to_onnx,
    Format.PT2: _to_pt2,
    Format.SAFETENSORS: _to_safetensors,
}
_USE: Final = {
    Format.ONNX: 'Use it:  onnxruntime.InferenceSession("{path}")',
    Format.PT2: 'Use it:  torch.export.load("{path}").module()',
    Format.SAFETENSORS: 'Use it:  diffprune.load_pruned(YourModel(), "{path}")',
}
