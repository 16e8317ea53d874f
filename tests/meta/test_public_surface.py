"""What users may rely on, written down; a change here belongs in the changelog."""

import inspect

import pytest

import diffprune

SURFACE = {
    "ApproximateBernoulli": "base u threshold sharpness * validate_args",
    "Budget": "* macs parameters memory size latency steps",
    "Gate": "size * u sigma dropout learn_dropout sharpness learn_sharpness init_std "
    "beta_margin dim base index min_open",
    "Groups": "groups frozen attributes tensors products solution",
    "Plan": "kept tensors attributes stubs certificate",
    "PruneGroup": "name size axes parameters macs atom",
    "Pruner": "model example_inputs * strength budget freeze heads rules gate "
    "remove_every reopen patience round_to on_removal on_budget",
    "Recipe": "* name epochs batch_size lr gate_lr weight_decay decay decay_after "
    "decay_factor clip_norm amp gate strength budget remove_every reopen seed",
    "Task": "* model train test validation loss error optimizer",
    "apply_plan": "model plan",
    "by_macs": "strength",
    "by_parameters": "strength",
    "compact": "model example_inputs **options",
    "expected_l0": "model strength",
    "find_groups": "model example_inputs * freeze heads rules",
    "fold_gates": "module",
    "g": "sample u beta zeta",
    "gate_weight": "layer name * index **options",
    "load_checkpoint": "path pruner optimizer",
    "load_pretrained": "folder",
    "load_pruned": "model folder * optimizer",
    "load_sparse": "model path",
    "parameter_groups": "model * weight_decay lr gate_lr",
    "plan_removal": "groups * keep round_to min_units scores",
    "read_run": "folder",
    "remove": "model example_inputs * keep round_to min_units scores refit **options",
    "shrink": "model data loss budget * refit round_to choosing fitting report "
    "progress **options",
    "save_checkpoint": "path pruner optimizer * extra",
    "save_pruned": "model folder * optimizer",
    "save_sparse": "model path",
    "to_exported_program": "model example_inputs path * batch_dim",
    "to_onnx": "model example_inputs path * batch_dim",
    "train": "make_task recipe * out device on_epoch",
}
METHODS = {
    "ApproximateBernoulli": "expand prob_open rsample sample",
    "Budget": "asked needed_steps to_dict",
    "Gate": "at_floor extra_repr forward is_open keep_ margin penalty prob_open "
    "reopening sample values",
    "Groups": "keep macs narrowed parameters",
    "Plan": "from_json then to_json without",
    "PruneGroup": "",
    "Pruner": "add_copy finalize load_state_dict parameter_groups penalty "
    "remove_closed_ shape state_dict step summary units",
    "Recipe": "from_dict lr_factor to_dict",
    "Task": "error loss optimizer",
}


def written(function):
    """Parameter names as they are passed: `*` before those that need their name."""
    kinds = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    names, keyword_only = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            names.append("*")
            keyword_only = True
        names.append(kinds.get(parameter.kind, "") + parameter.name)
    return " ".join(names)


def test_public_names_are_these():
    assert dir(diffprune) == sorted(SURFACE)


@pytest.mark.parametrize("name", SURFACE)
def test_arguments_are_these(name):
    assert written(getattr(diffprune, name)) == SURFACE[name]


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_these(name):
    members = vars(getattr(diffprune, name)).items()
    callables = (k for k, v in members if callable(v) or isinstance(v, classmethod))
    assert " ".join(sorted(k for k in callables if k[0] != "_")) == METHODS[name]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Prunner'"):
        _ = diffprune.Prunner
