"""`diffprune inspect`: what can be removed from a model, and what cannot and why."""

from typing import Annotated

import typer

from diffprune.lab.cli.options import AsJson, TaskOfRun, Trust
from diffprune.lab.cli.output import said_plainly, show, show_json, with_examples


@with_examples(
    "diffprune inspect mine.py:make_model --input 1,3,32,32",
    "diffprune inspect timm:resnet50",
    "diffprune inspect hf:path/to/folder --input input_ids=int64:2,16",
    "diffprune inspect runs/mine --json | jq '.groups[].units'",
)
def inspect(
    target: Annotated[
        str,
        typer.Argument(
            help="`file.py:factory`, `package.module:factory`, `timm:NAME`, "
            "`torchvision:NAME`, `hf:FOLDER` with a `config.json`, or a run folder."
        ),
    ],
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=][TYPE:]SHAPE",
            help="An example input; once for each that the model takes.",
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Layers to leave as they are."),
    ] = None,
    task: TaskOfRun = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Show what can be removed from a model, what it costs, and what is frozen and why.

    A *factory* is a function that needs no arguments and returns a model. Nothing is
    downloaded: weights are random, which changes nothing about what can be removed.
    """
    from diffprune._graph import find_groups  # noqa: PLC0415
    from diffprune.errors import ArgumentError  # noqa: PLC0415
    from diffprune.lab.cli import group_tree as groups  # noqa: PLC0415 - imports torch
    from diffprune.lab.cli.example_inputs import (  # noqa: PLC0415
        check_typed,
        parse_inputs,
    )
    from diffprune.lab.cli.load_model import load_target  # noqa: PLC0415

    with said_plainly():
        given = parse_inputs(inputs) if inputs else None
        found = load_target(target, task, trust=trust)
        example_inputs = found.inputs if given is None else given
        if example_inputs is None:
            raise ArgumentError(
                "what does the model take? Add `--input 1,3,224,224`, or whatever its "
                "shape is."
            )
        if given is not None:
            check_typed(found.model, given)
        seen = find_groups(found.model, example_inputs, freeze=freeze or ())
    if as_json:
        show_json(groups.to_dict(seen, found.worth))
    else:
        show(*groups.view(target, seen, found.worth))
