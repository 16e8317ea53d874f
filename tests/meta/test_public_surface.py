"""What users may rely on, written down; a change here belongs in the changelog.

Every public name with its arguments (`*` stands before those that need their name), and
the public methods and properties of every public class.
"""

import importlib
import inspect
import pydoc
from functools import cached_property

import pytest

import diffprune

SURFACE = {
    "diffprune": {
        "Budget": "* macs parameters memory size latency steps pretrained",
        "Gate": "size * u sigma dropout learn_dropout sharpness learn_sharpness "
        "init_std beta_margin dim base index min_open start",
        "Pruner": "model example_inputs * strength steps budget freeze heads rules tie "
        "gate remove_every reopen patience round_to on_removal on_budget "
        "on_unknown_state",
        "benchmark": "dense small example_inputs * compiled rounds",
        "by_macs": "strength",
        "by_parameters": "strength",
        "compact": "model example_inputs **options",
        "expected_l0": "model strength",
        "find_groups": "model example_inputs * freeze heads rules tie norms",
        "fold_gates": "module",
        "gate_weight": "layer name * index **options",
        "load_checkpoint": "path pruner optimizer",
        "load_pruned": "model folder * optimizer",
        "parameter_groups": "model * weight_decay lr gate_lr",
        "remove": "model example_inputs * keep round_to min_units scores refit "
        "**options",
        "save_checkpoint": "path pruner optimizer * extra",
        "save_pruned": "model folder * optimizer",
        "shrink": "model data loss budget * refit norms round_to choosing fitting "
        "report progress **options",
        "to_exported_program": "model example_inputs path * batch_dim",
        "to_onnx": "model example_inputs path * batch_dim",
    },
    "diffprune.gates": {
        "ApproximateBernoulli": "base u threshold sharpness * validate_args",
        "BaseGate": "* dim index",
        "Gate": "size * u sigma dropout learn_dropout sharpness learn_sharpness "
        "init_std beta_margin dim base index min_open start",
        "GateLike": "*args **kwargs",
        "expected_l0": "model strength",
        "fold_gates": "module",
        "g": "sample u beta zeta",
        "gate_weight": "layer name * index **options",
        "load_sparse": "model path",
        "named_gates": "model kind",
        "parameter_groups": "model * weight_decay lr gate_lr",
        "save_sparse": "model path",
    },
    "diffprune.surgery": {
        "Certificate": "max_absolute max_relative dtype compared doubts",
        "FrozenAxis": "name size reason",
        "Groups": "groups frozen attributes tensors products solution",
        "Plan": "kept tensors attributes stubs certificate",
        "PruneGroup": "name size axes parameters macs atom is_exact",
        "Removal": "model plan refit",
        "RemovalRecord": "step units parameters macs certificate worth",
        "ShrinkReport": "groups costs loss_before loss_after plan refit",
        "TensorAxis": "tensor dim axis is_read is_parameter is_direction",
        "apply_plan": "model plan",
        "apply_plan_": "model plan",
        "certify": "original small inputs * kept modes twins",
        "compaction": "model example_inputs **options",
        "mask": "model groups keep",
        "plan_removal": "groups * keep round_to min_units scores",
        "removal": "model example_inputs groups * keep refit",
    },
    "diffprune.rules": {
        "Axes": "",
        "Call": "where shapes algebra facts integers is_used",
        "Op": "",
        "OpRule": "axes zeros rows bias linear passes_scale may_return_input at_widths",
        "Rule": "",
        "Step": "op packet rule call args kwargs outputs node",
        "Unsupported": "",
        "Value": "axes name is_mask",
        "Zeros": "*args **kwargs",
        "always_zero": "zeros step",
        "never_zero": "zeros step",
        "zero_if_all": "zeros step",
        "zero_if_any": "zeros step",
        "zero_if_first": "zeros step",
        "zero_if_parts": "zeros step",
        "zero_if_tried": "zeros step",
        "zero_rows": "zeros step",
    },
    "diffprune.testing": {
        "check_composition": "model example_inputs * groups seed **options",
        "check_gate": "make_gate * sizes seed atol",
        "check_groups": "model example_inputs * groups seed atol **options",
        "check_removal": "model example_inputs * keep groups seed atol **options",
        "check_round_trip": "make_model model example_inputs * groups seed **options",
        "check_rule": "rules model example_inputs * seed",
        "check_training_commutes": "model example_inputs optimizer * loss steps "
        "training seed atol **options",
        "random_keep": "groups * seed share",
    },
    "diffprune.lab": {
        "Epoch": "* number loss train_error validation_error test_error raw effective "
        "parameters macs macs_per_step seconds lr prob_open steps processor_seconds "
        "test_examples worth",
        "Front": "runs best searched given_up",
        "Outcome": "* raw effective parameters macs validation_error test_error "
        "seconds test_examples",
        "Recipe": "* name epochs batch_size lr gate_lr weight_decay decay decay_after "
        "decay_factor clip_norm amp strength budget gate pruner seed",
        "Recorder": "folder pruner recipe",
        "Reference": "* label error macs parameters widths note group",
        "Run": "* folder name recipe environment epochs removals outcome task",
        "Search": "* ranges trials goals seeds sampler prune",
        "Task": "* model train test validation loss error optimizer pruner",
        "read_run": "folder",
        "record": "pruner recipe * out make_model",
        "sweep": "task vary * out recipe workers device storage on",
        "tensorboard": "folder",
        "train": "make_task recipe * out device on_epoch",
        "write_report": "runs out * references measure trust",
    },
    "diffprune.errors": {
        "ArgumentError": "",
        "DiffpruneError": "",
        "ExportError": "",
        "FinishedError": "",
        "MissingFileError": "",
        "MissingPackageError": "",
        "ProcessError": "",
        "RemovalError": "",
        "RuleError": "",
        "StorageError": "",
        "TraceError": "",
        "UnknownNameError": "",
    },
}
METHODS = {
    "diffprune.Budget": "asked needed_steps to_dict",
    "diffprune.Gate": "at_floor draw extra_repr forward is_open keep_ margin penalty "
    "prob_open reopening sample sharpness size values",
    "diffprune.Pruner": "add_copy add_to add_wrapper example_inputs finalize gates "
    "groups history kept load_state_dict model parameter_groups penalty plan "
    "remove_closed_ shape shard_ state_dict step summary units worth",
    "diffprune.gates.ApproximateBernoulli": "expand has_rsample prob_open rsample "
    "sample support",
    "diffprune.gates.BaseGate": "draw forward is_open keep_ margin penalty reopening "
    "size values",
    "diffprune.gates.GateLike": "is_open keep_ margin named_parameters penalty "
    "reopening size values",
    "diffprune.surgery.Certificate": "is_vacuous",
    "diffprune.surgery.FrozenAxis": "",
    "diffprune.surgery.Groups": "keep macs macs_by_module narrowed parameters sizes",
    "diffprune.surgery.Plan": "from_json then to_json without",
    "diffprune.surgery.PruneGroup": "",
    "diffprune.surgery.Removal": "",
    "diffprune.surgery.RemovalRecord": "from_dict to_dict",
    "diffprune.surgery.ShrinkReport": "",
    "diffprune.surgery.TensorAxis": "",
    "diffprune.rules.Call": "broadcast contract couple cut freeze fresh frozen "
    "layer_widths match multiply_adds reduce require require_if_computed "
    "rest_are_numbers shape split unify",
    "diffprune.rules.OpRule": "at_widths zeros",
    "diffprune.rules.Step": "argument inputs rows",
    "diffprune.rules.Value": "shape",
    "diffprune.rules.Zeros": "along atoms full of",
    "diffprune.lab.Epoch": "to_dict",
    "diffprune.lab.Front": "figure table to_dict",
    "diffprune.lab.Outcome": "to_dict",
    "diffprune.lab.Recipe": "as_dense folder_name from_dict is_dense lr_factor to_dict",
    "diffprune.lab.Recorder": "epoch finish",
    "diffprune.lab.Reference": "",
    "diffprune.lab.Run": "is_dense latest to_dict worst_certificate",
    "diffprune.lab.Task": "error loss optimizer",
}

NAMES = [(module, name) for module, names in SURFACE.items() for name in names]


def written(thing):
    """Parameter names as they are passed; empty for what nobody calls."""
    kinds = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    is_error = inspect.isclass(thing) and issubclass(thing, Exception)
    if is_error or not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return ""
    names, keyword_only = [], False
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            names.append("*")
            keyword_only = True
        names.append(kinds.get(parameter.kind, "") + parameter.name)
    return " ".join(names)


def public(module):
    names = getattr(module, "__all__", None) or vars(module)
    return {
        name
        for name in names
        if not name.startswith("_") and not inspect.ismodule(getattr(module, name))
    }


@pytest.mark.parametrize("module", SURFACE)
def test_public_names_are_these(module):
    assert public(importlib.import_module(module)) == set(SURFACE[module])


def test_public_namespaces_are_these():
    modules = {n for n in dir(diffprune) if inspect.ismodule(getattr(diffprune, n))}
    assert modules == {"errors", "gates", "rules", "surgery", "testing"}


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_arguments_are_these(module, name):
    thing = getattr(importlib.import_module(module), name)
    assert written(thing) == SURFACE[module][name]


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_these(name):
    kinds = classmethod | property | cached_property
    found = {
        member
        for kind in pydoc.locate(name).__mro__
        if kind.__module__.startswith("diffprune.")
        for member, value in vars(kind).items()
        if callable(value) or isinstance(value, kinds)
    }
    assert " ".join(sorted(k for k in found if k[0] != "_")) == METHODS[name]


def test_the_version_is_public():
    assert diffprune.__version__ == "0.1.0"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"diffprune.*Prunner"):
        _ = diffprune.Prunner
