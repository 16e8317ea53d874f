"""What a campaign gives and is rightly accepted, and other words for arguments.

Every reason covers some values of a kind of argument, or of one argument; whatever else
is accepted is a failure. A reason for functions covers functions, and no number that an
argument may be instead.
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
    "layer": ("parameter", "model"),
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
    "shard": ("divided",),
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

_FUNCTIONS = ("Callable: *", "function", "module", "class", "Module: *")
_WORDS = ("str: *", "text", "no text", "very long text", "half a character")
_MODULES = ("Module: *", "module")
_WITHOUT_LAYERS = ("Module: no layers", "Module: only activation", "module")
_ODD_LAYERS = ("Module: nan weights", "Module: rude")
_NOTHING = ("()", "[[]]", "{}", "[[]None]")
_PATHS = ("PathLike: *", "path", "text", "str: *", "very long text")
_NUMBERS = ("-1", "0", "1e30", "2.5", "float: least", "float: -0.5")
_TENSORS = ("Tensor: *", "tensor", "nan tensor")


def _each(
    door: str, argument: str, values: tuple[str, ...], annotation: str, reason: str
) -> tuple[Accepted, ...]:
    return tuple(Accepted(door, argument, v, annotation, reason) for v in values)


def _for(
    arguments: tuple[str, ...], value: str, annotation: str, reason: str
) -> tuple[Accepted, ...]:
    return tuple(Accepted("*", a, value, annotation, reason) for a in arguments)


_MAY_BE_ZERO = (
    "*_error", "atol", "beta", "decay_factor", "error", "gate_lr", "gate_lr_scale",
    "init_std", "loss", "lr", "reopen", "share", "sharpness", "sigma", "strength",
    "threshold", "weight_decay", "zeta",
)  # fmt: skip
"""Numbers of which none is a right amount, by argument."""
_ANY_SIZE = (
    *_MAY_BE_ZERO, "beta_margin", "clip_norm", "latency", "macs", "memory",
    "parameters", "size",
)  # fmt: skip
"""Numbers that training, or a model, has no bound for; infinite ones have one."""
_PARTS = ("dropout",)
_MAY_BE_NO_COUNT = (
    "batch_dim", "dim", "epoch", "examples", "macs", "min_open", "parameters", "seed",
    "steps", "test_examples",
)  # fmt: skip
"""Counts, places and seeds of which zero is a right one."""
_NAMES = ("*_shape", "decay_after", "freeze", "references", "rows", "tie")
_BY_NAME = (
    "budget", "extra", "gate", "keep", "masks", "pruner", "rules", "scores", "strength",
)  # fmt: skip

ACCEPTED = (
    Accepted("*", "*", "None", "*None*", "None is the documented way to leave it out"),
    Accepted("*", "*", "None", "*Optional*", "the same, as Python writes it"),
    Accepted("*", "*", "True", "*bool*", "it is a bool"),
    *_for(_MAY_BE_ZERO, "0", "*float*", "nothing of it is asked for"),
    *_for(_MAY_BE_NO_COUNT, "0", "*int*", "zero is in its range"),
    *_for(_ANY_SIZE, "1e30", "*float*", _NUMBER),
    *_for(_ANY_SIZE, "2.5", "*float*", _NUMBER),
    *_for(_ANY_SIZE, "float: least", "*float*", "it is a number, however small"),
    *_for(_PARTS, "float: least", "*float*", "it is a part, however small"),
    *_for(_NAMES, "[[]]", "*Sequence*", _ASKS_NOTHING),
    *_for(_NAMES, "()", "*Sequence*", _ASKS_NOTHING),
    *_for(_NAMES, "()", "*tuple*", _ASKS_NOTHING),
    *_for(_BY_NAME, "{}", "*Mapping*", _ASKS_NOTHING),
    *_each("*", "on_*", _FUNCTIONS, "*Callable*", _CALLED_LATER),
    *_each("*", "remove_every", _FUNCTIONS, "*Callable*", _CALLED_LATER),
    *_each("*", "report", _FUNCTIONS, "*Callable*", _CALLED_LATER),
    *_each("*", "progress", _FUNCTIONS, "*Callable*", _CALLED_LATER),
    *_each("*.Task", "*", _FUNCTIONS, "*Callable*", _CALLED_LATER),
    *_each("*.Task", "*", _NOTHING, "*Loader*", _LATER),
    *_each("*.Task", "model", _MODULES, "*Module*", _LATER),
    *_each(
        "*.Recipe",
        "name",
        _WORDS,
        "*",
        _FREE_TEXT,
    ),
    *_each("*.Recipe", "budget", ("Mapping*", "{text: None}", "{}"), "*", _LATER),
    *_each("*.Recipe", "gate", ("Mapping*", "{text: None}", "{}"), "*", _LATER),
    *_each("*.Recipe", "pruner", ("Mapping*", "{text: None}", "{}"), "*", _LATER),
    *_each(
        "*.Reference",
        "*",
        _WORDS,
        "*str*",
        _FREE_TEXT,
    ),
    *_each("*.Recorder.epoch", "loss", _NUMBERS, "*float*", "a loss may be negative"),
    *_each("*.record", "recipe", ("Recipe: *",), "*", "a record shows what it is told"),
    *_each(
        "*.record", "make_model", _FUNCTIONS, "*", "it is only noted, where it can be"
    ),
    *_each(
        "*.save_checkpoint",
        "extra",
        ("Mapping*", "{*}"),
        "*Mapping*",
        "any tensors can be kept",
    ),
    *_each("*.save_*", "model", _MODULES, "*Module*", _ANY_MODULE),
    *_each("*.to_*", "path", _PATHS, "*PathLike*", _REPLACED),
    *_each(
        "*.to_*",
        "model",
        (*_WITHOUT_LAYERS, *_ODD_LAYERS),
        "*Module*",
        "a module that runs can be exported",
    ),
    *_each(
        "*.find_groups",
        "model",
        (*_WITHOUT_LAYERS, *_ODD_LAYERS),
        "*Module*",
        "it has no groups",
    ),
    *_each(
        "*.compact*",
        "model",
        (*_WITHOUT_LAYERS, *_ODD_LAYERS),
        "*Module*",
        "it has nothing to compact",
    ),
    *_each("*.benchmark", "*", _MODULES, "*Module*", "a module that runs can be timed"),
    *_each("*.save_*", "path", _PATHS, "*PathLike*", _REPLACED),
    *_each("*.save_*", "folder", _PATHS, "*PathLike*", _REPLACED),
    *_each("*.record", "out", _PATHS, "*PathLike*", _REPLACED),
    *_each("*.tensorboard", "folder", _PATHS, "*PathLike*", _REPLACED),
    Accepted("*.Gate*", "sharpness", "inf", "*", "it makes a gate binary"),
    Accepted("*.gate_weight", "sharpness", "inf", "*", "it makes a gate binary"),
    *_each(
        "*.ApproximateBernoulli",
        "sharpness",
        ("inf", "*tensor inf", "float: least"),
        "*",
        "it makes gates binary",
    ),
    *_each("*.ApproximateBernoulli*", "*", _TENSORS, "*Tensor*", "one for all units"),
    *_each("*.ApproximateBernoulli", "u", _FUNCTIONS, "*", _CALLED_LATER),
    *_each(
        "*.ApproximateBernoulli.*",
        "*_shape",
        ("Sequence: numbers", "()", "[[]]"),
        "*",
        "it is a shape",
    ),
    Accepted("*.Gate", "dim", "*-1", "*int*", "dimensions count from the end, too"),
    Accepted("*.Gate", "index", "*ints", "*", "several elements may share a unit"),
    Accepted("*.Gate.forward", "x", "*complex", "*", "gates multiply those, too"),
    *_each("*.fold_gates", "module", _MODULES, "*", "without gates it stays as it is"),
    *_each("*.named_gates", "model", _MODULES, "*", "a module without gates has none"),
    *_each(
        "*.parameter_groups", "model", _MODULES, "*", "any module has some, or none"
    ),
    *_each("*.gate_weight", "layer", _MODULES, "*", "it has a weight to gate"),
    *_each("*.gates.g", "sample", _TENSORS, "*", "any shape will do"),
    *_each("*.certify", "kept", _FUNCTIONS, "*", "it is called for messages only"),
    *_each("*", "*sharpness", ("float: 1e308",), "*", "it makes a gate binary"),
    *_each("*.gates.g", "zeta", ("float: 1e308",), "*", "it makes gates binary"),
    Accepted("*.certify", "inputs", "*all nan", "*", "it says that it shows nothing"),
    Accepted("*", "refit", "Iterable: no targets", "*", "refitting needs none"),
    Accepted("*", "refit", "Tensor: wrong shape", "*", "its rows are batches"),
    Accepted("*.gates.g", "*", "*tensor inf", "*", "looking into tensors takes time"),
    Accepted("*.gates.g", "zeta", "inf", "*", "it makes gates binary"),
    Accepted("*.shrink", "data", "*only once", "*", "it is read once, and kept"),
    Accepted("*.gates.g", "u", "module", "*", "a module is a function of a tensor"),
    *_each("*.gates.g", "*", _TENSORS, "*Tensor*", "looking into tensors takes time"),
    Accepted("*.mask", "keep", "*keeps nothing", "*", "what is masked is zero"),
    Accepted("*.Groups.keep", "masks", "*keeps nothing", "*", "a branch may vanish"),
    *_each(
        "*.Plan.then", "later", ("Plan: *",), "*", "it is checked against a model later"
    ),
    *_each(
        "*", "scores", ("Mapping*", "{}"), "*Mapping*", "any finite numbers rank units"
    ),
    *_each(
        "*.OpRule", "*", _FUNCTIONS, "*Callable*", "a rule that fails is a `RuleError`"
    ),
    *_each("*.OpRule", "axes", _FUNCTIONS, "*", "a rule that fails is a `RuleError`"),
    Accepted("*.check_gate", "sizes", "*numbers", "*", "they are sizes"),
    Accepted("*.testing.*", "loss", "module", "*", "a module is a function"),
    Accepted("*.testing.*", "optimizer", "*class", "*", "a class makes optimizers"),
    Accepted("*.Task", "optimizer", "*class", "*", "a class makes optimizers"),
    *_each("*", "*lr", ("Tensor: scalar",), "*", "a rate may be a tensor, for torch"),
    Accepted(
        "*.lightning.Pruning", "example_inputs", "None", "*", "the module has some"
    ),
    *_each("*.random_keep", "groups", ("Groups: *",), "*", "of any groups"),
    Accepted("*.lab.sweep", "recipe", "*budget", "*", "what is varied replaces it"),
    *_each("*.lab.sweep", "out", _PATHS, "*PathLike*", _REPLACED),
    *_each("*.lab.train", "out", _PATHS, "*PathLike*", _REPLACED),
    *_each("*.write_report", "out", _PATHS, "*PathLike*", _REPLACED),
    *_each("*.Pruning", "module", _WORDS, "*str*", "the trainer has the module, later"),
    *_each(
        "*.Pruning",
        "example_inputs",
        ("ExampleInputs: *", "()", "tensor", "nan tensor", "Mapping*", "{*}"),
        "*",
        _TRAINER,
    ),
    *_each("*.Pruning", "*", _FUNCTIONS, "*Callable*", _CALLED_LATER),
    *_each("*.Pruning", "*", ("Sequence: *",), "*Sequence*", _TRAINER),
    *_each("*.Pruning", "*", ("Mapping*",), "*Mapping*", _TRAINER),
    *_each("*.Pruning", "budget", ("Budget: *",), "*", _TRAINER),
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
