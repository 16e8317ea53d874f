"""What a campaign gives and is rightly accepted, and other words for arguments.

Every reason covers a kind of argument, or some values of one argument; whatever else is
accepted is a failure.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

NAMED_BY = {
    "accelerator": ("processes",),
    "base": ("distribution",),
    "batch_dim": ("batch dimension",),
    "budget": ("cannot be met", "limits something"),
    "data": ("batch",),
    "example_inputs": ("inputs",),
    "example_input": ("inputs",),
    "folder": ("blueprint.json", "run"),
    "gate": ("gates",),
    "groups": ("keep: the mask", "the plan cuts"),
    "heads": ("nothing in this model",),
    "layer": ("parameter",),
    "make_model": ("model",),
    "make_task": ("task",),
    "masks": ("there is no group",),
    "model": ("no group", "network", "gates", "layer"),
    "module": ("model",),
    "optimizers": ("optimizer",),
    "path": ("file",),
    "pruner": ("state",),
    "rules": ("rule",),
    "recipe": ("freeze", "macs", "budget"),
    "runs": ("run",),
    "small": ("smaller model",),
    "strength": ("nothing in this model",),
    "text": ("plan",),
    "vary": ("sweep",),
}
"""What messages call an argument, where that says more than its name."""


class Accepted(NamedTuple):
    """Calls that are right, by pattern."""

    door: str
    argument: str
    value: str
    annotation: str
    reason: str


_FREE_TEXT = "it is free text, and any text will do"
_CALLED_LATER = "what a function of the user's does is seen when it is called"
_REPLACED = "a file or folder of that name is written, and replaced if it is there"
_ANY_MODULE = "any module has parameters, or none, that can be stored"
_ASKS_NOTHING = "an empty container asks for nothing"
_NUMBER = "it is a number like others, however large"
_TRAINER = "the trainer has the model, later"
_LATER = "the workbench checks it when it is used, with the task at hand"

ACCEPTED = (
    Accepted("*", "*", "None", "*None*", "None is the documented way to leave it out"),
    Accepted("*", "*", "None", "*Optional*", "the same, as Python writes it"),
    Accepted("*", "*", "True", "*bool*", "it is a bool"),
    Accepted("*", "*", "0", "*float*", _NUMBER),
    Accepted("*", "*", "0", "*int*", "zero is in its range"),
    Accepted("*", "*", "1e30", "*float*", _NUMBER),
    Accepted("*", "*", "2.5", "*float*", _NUMBER),
    Accepted("*", "*", "*1e308", "*float*", _NUMBER),
    Accepted("*", "*", "[[]]", "*Sequence*", _ASKS_NOTHING),
    Accepted("*", "*", "()", "*Sequence*", _ASKS_NOTHING),
    Accepted("*", "*", "()", "*tuple*", _ASKS_NOTHING),
    Accepted("*", "*", "{}", "*Mapping*", _ASKS_NOTHING),
    Accepted("*", "on_*", "*", "*Callable*", _CALLED_LATER),
    Accepted("*", "remove_every", "*", "*Callable*", _CALLED_LATER),
    Accepted("*", "report", "*", "*Callable*", _CALLED_LATER),
    Accepted("*", "progress", "*", "*Callable*", _CALLED_LATER),
    Accepted("*.Task", "*", "*", "*Callable*", _CALLED_LATER),
    Accepted("*.Task", "*", "*", "*Loader*", _LATER),
    Accepted("*.Task", "model", "*", "*Module*", _LATER),
    Accepted("*.Recipe", "name", "*", "*", _FREE_TEXT),
    Accepted("*.Recipe", "budget", "*", "*", _LATER),
    Accepted("*.Recipe", "gate", "*", "*", _LATER),
    Accepted("*.Recipe", "pruner", "*", "*", _LATER),
    Accepted("*.Reference", "*", "*", "*str*", _FREE_TEXT),
    Accepted("*.Recorder.epoch", "loss", "*", "*float*", "a loss may be negative"),
    Accepted("*.record", "recipe", "*", "*", "a record shows what it is told"),
    Accepted("*.record", "make_model", "*", "*", "it is only noted, where it can be"),
    Accepted("*.save_checkpoint", "extra", "*", "*Mapping*", "any tensors can be kept"),
    Accepted("*.save_*", "model", "*", "*Module*", _ANY_MODULE),
    Accepted("*.to_*", "path", "*", "*PathLike*", _REPLACED),
    Accepted("*.to_*", "model", "*", "*Module*", "a module that runs can be exported"),
    Accepted("*.find_groups", "model", "*", "*Module*", "it has no groups"),
    Accepted("*.compact*", "model", "*", "*Module*", "it has nothing to compact"),
    Accepted("*.benchmark", "*", "*", "*Module*", "a module that runs can be timed"),
    Accepted(
        "*.register", "model", "*", "*Module*", "the accelerator wraps as it likes"
    ),
    Accepted("*.save_*", "path", "*", "*PathLike*", _REPLACED),
    Accepted("*.save_*", "folder", "*", "*PathLike*", _REPLACED),
    Accepted("*.record", "out", "*", "*PathLike*", _REPLACED),
    Accepted("*.tensorboard", "folder", "*", "*PathLike*", _REPLACED),
    Accepted("*.Gate*", "sharpness", "inf", "*", "it makes a gate binary"),
    Accepted("*.gate_weight", "sharpness", "inf", "*", "it makes a gate binary"),
    Accepted("*.ApproximateBernoulli", "sharpness", "*", "*", "it makes gates binary"),
    Accepted("*.ApproximateBernoulli*", "*", "*", "*Tensor*", "one for all units"),
    Accepted("*.ApproximateBernoulli", "u", "*", "*", _CALLED_LATER),
    Accepted("*.ApproximateBernoulli.*", "*_shape", "*", "*", "it is a shape"),
    Accepted("*.Gate", "dim", "*-1", "*int*", "dimensions count from the end, too"),
    Accepted("*.Gate", "index", "*ints", "*", "several elements may share a unit"),
    Accepted("*.Gate.forward", "x", "*complex", "*", "gates multiply those, too"),
    Accepted("*.fold_gates", "module", "*", "*", "without gates it stays as it is"),
    Accepted("*.named_gates", "model", "*", "*", "a module without gates has none"),
    Accepted("*.parameter_groups", "model", "*", "*", "any module has some, or none"),
    Accepted("*.gate_weight", "layer", "*", "*", "it has a weight to gate"),
    Accepted("*.gates.g", "sample", "*", "*", "any shape will do"),
    Accepted("*.gates.g", "u", "module", "*", "a module is a function of a tensor"),
    Accepted(
        "*.gates.g",
        "*",
        "*",
        "*Tensor*",
        "looking into tensors takes time",
    ),
    Accepted("*.mask", "keep", "*keeps nothing", "*", "what is masked is zero"),
    Accepted("*.Groups.keep", "masks", "*keeps nothing", "*", "a branch may vanish"),
    Accepted("*.Plan.then", "later", "*", "*", "it is checked against a model later"),
    Accepted("*", "scores", "*", "*Mapping*", "any finite numbers rank units"),
    Accepted("*.OpRule", "*", "*", "*Callable*", "a rule that fails is a `RuleError`"),
    Accepted("*.OpRule", "axes", "*", "*", "a rule that fails is a `RuleError`"),
    Accepted("*.check_gate", "sizes", "*numbers", "*", "they are sizes"),
    Accepted("*.testing.*", "loss", "module", "*", "a module is a function"),
    Accepted("*.testing.*", "optimizer", "*class", "*", "a class makes optimizers"),
    Accepted("*.random_keep", "groups", "*", "*", "of any groups"),
    Accepted("*.lab.sweep", "recipe", "*budget", "*", "what is varied replaces it"),
    Accepted("*.lab.sweep", "out", "*", "*PathLike*", _REPLACED),
    Accepted("*.lab.train", "out", "*", "*PathLike*", _REPLACED),
    Accepted("*.write_report", "out", "*", "*PathLike*", _REPLACED),
    Accepted("*.Pruning", "module", "*", "*str*", "the trainer has the module, later"),
    Accepted("*.Pruning", "example_inputs", "*", "*", _TRAINER),
    Accepted("*.Pruning", "*", "*", "*Callable*", _CALLED_LATER),
    Accepted("*.Pruning", "*", "*", "*Sequence*", _TRAINER),
    Accepted("*.Pruning", "*", "*", "*Mapping*", _TRAINER),
    Accepted("*.Pruning", "budget", "*", "*", _TRAINER),
    Accepted("*.Pruning", "reopen", "*", "*float*", "the pruner knows its range"),
    Accepted(
        "*", "example_inputs", "*all nan", "*", "the certificate says it shows nothing"
    ),
)


def reason_for(door: str, argument: str, value: str, annotation: str) -> str | None:
    """Why a call is right although it was meant to be wrong; None if it is not."""
    for one in ACCEPTED:
        pairs = zip((door, argument, value, annotation), one[:4], strict=True)
        if all(fnmatchcase(text, pattern) for text, pattern in pairs):
            return one.reason
    return None
