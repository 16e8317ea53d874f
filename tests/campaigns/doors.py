"""A good call of every public function, whose arguments a campaign then spoils.

Each is made afresh: the function, its arguments by name, and all that has to be as it
was when the call is refused.
"""

import copy
import importlib
import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import diffprune as dp
from diffprune import gates, lab, rules, surgery, testing
from diffprune.lab.image_batches import Batches, Examples
from tests.campaigns.scenes import INPUTS, net, trained

PUBLIC = (dp, gates, surgery, rules, testing, lab)
LIBRARIES = ("accelerate", "fsdp", "lightning", "peft", "transformers")
TASK = """
import torch
from torch import nn
from diffprune.lab import Task
from diffprune.lab.image_batches import Batches, Examples

def model():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))

def task(recipe):
    x = torch.rand(8, 3)
    data = Examples(x, (x[:, 0] > x[:, 1]).long())
    return Task(model=model(), train=Batches(data, 4), test=Batches(data, 8))
"""


@dataclass
class Good:
    """A call that works."""

    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    roots: tuple[Any, ...] = ()
    options: Callable[..., Any] | None = None
    """What `**options` are passed on to."""

    def call(self):
        signature = inspect.signature(self.function)
        given, options = {}, {}
        for name, value in self.arguments.items():
            (given if name in signature.parameters else options)[name] = value
        bound = signature.bind_partial()
        extra = [
            p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD
        ]
        in_order = [name for name in signature.parameters if name in given]
        bound.arguments = {name: given[name] for name in in_order}
        if extra and options:
            bound.arguments[extra[0]] = options
        done = self.function(*bound.args, **bound.kwargs)
        if hasattr(done, "__enter__") and hasattr(done, "gen"):
            with done:
                pass
        return done

    def parameters(self):
        """What can be given, `**options` by their own names."""
        found = {}
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:
                found[parameter.name] = parameter
            elif self.options is not None:
                taken = inspect.signature(self.options).parameters
                found |= {n: p for n, p in taken.items() if n not in found}
        return found


@cache
def groups():
    return dp.find_groups(net(), INPUTS)


@cache
def plan():
    return surgery.plan_removal(groups(), keep=keep())


def keep():
    return {"0": torch.arange(8) < 5}


def small():
    return surgery.apply_plan(net(), plan())


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)


def data():
    return [(INPUTS, torch.tensor([0, 1, 0, 1]))]


def gated():
    return nn.Sequential(nn.Linear(3, 4), dp.Gate(4), nn.Linear(4, 2))


def recipe(**options):
    return lab.Recipe(name="a", epochs=1, batch_size=4, **options)


def task(_=None):
    x = torch.rand(8, 3)
    examples = Examples(x, (x[:, 0] > x[:, 1]).long())
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    return lab.Task(model=model, train=Batches(examples, 4), test=Batches(examples, 8))


def on(model=net, **arguments):
    made = model()
    return {"model": made, "example_inputs": INPUTS, **arguments}


def of_model(function, arguments, options=None):
    return Good(function, arguments, (arguments["model"],), options)


def of_pruner(method, **arguments):
    pruner, optimizer = trained()
    made = {name: make(pruner, optimizer) for name, make in arguments.items()}
    return Good(getattr(pruner, method), made, (pruner, optimizer))


def checkpoint(folder):
    path = folder / "run.pt"
    if not path.exists():
        dp.save_checkpoint(path, *trained())
    return path


def pruned(folder):
    path = folder / "small"
    if not path.exists():
        dp.save_pruned(small(), path)
    return path


def sparse(folder):
    path = folder / "sparse.safetensors"
    if not path.exists():
        gates.save_sparse(net(), path)
    return path


def run(folder):
    """A finished run, and the file of its task beside it."""
    path = folder / "run"
    if not path.exists():
        (folder / "mine.py").write_text(TASK)
        lab.train(task, recipe(strength=1e-3), out=path)
    return path


def new(folder, name="new"):
    """A place where nothing is yet."""
    return Path(tempfile.mkdtemp(dir=folder)) / name


def recorder(folder):
    pruner, optimizer = trained()
    opened = lab.record(pruner, recipe(strength=1e-3), out=new(folder))
    return opened.__enter__(), (pruner, optimizer), opened


def of_recorder(folder, method, **arguments):
    made, roots, opened = recorder(folder)
    if method == "finish":
        roots[0].finalize(roots[1])
    good = Good(getattr(made, method), arguments, roots)
    good.opened = opened
    return good


def _saving(folder):
    pruner, optimizer = trained()
    arguments = {"path": new(folder), "pruner": pruner, "optimizer": optimizer}
    return Good(dp.save_checkpoint, arguments, (pruner, optimizer))


def _resuming(folder):
    arguments = {"path": checkpoint(folder)}
    pruner = dp.Pruner(net(), INPUTS, strength=1e-3, remove_every=1)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2))
    arguments |= {"pruner": pruner, "optimizer": optimizer}
    return Good(dp.load_checkpoint, arguments, (pruner, optimizer))


def _adding(_):
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    pruner = dp.Pruner(model, INPUTS, strength=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    arguments = {"optimizer": optimizer, "schedulers": (scheduler,)}
    return Good(pruner.add_to, arguments, (pruner, optimizer))


def _copying(_):
    pruner, optimizer = trained()
    arguments = {"model": copy.deepcopy(pruner.model)}
    return Good(pruner.add_copy, arguments, (pruner, optimizer))


def _loading_state(_):
    pruner, optimizer = trained()
    pruner.step(optimizer)
    state = pruner.state_dict()
    pruner = dp.Pruner(net(), INPUTS, strength=1e-3, remove_every=1)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2))
    arguments = {"state": state, "optimizers": (optimizer,)}
    return Good(pruner.load_state_dict, arguments, (pruner, optimizer))


def _wrapping(_):
    """A wrapper can only be made where there are processes: any is refused here."""
    pruner, optimizer = trained()
    return Good(pruner.add_wrapper, {"wrapper": net()}, (pruner, optimizer))


def _sharding(_):
    """The same."""
    pruner, optimizer = trained()
    return Good(pruner.shard_, {"shard": lambda model: model}, (pruner, optimizer))


def _saving_shards(folder):
    from diffprune.integrations.fsdp import save_checkpoint

    pruner, optimizer = trained()
    arguments = {"folder": new(folder), "pruner": pruner, "optimizer": optimizer}
    return Good(save_checkpoint, arguments, (pruner, optimizer))


def _loading_shards(folder):
    from diffprune.integrations.fsdp import load_checkpoint, save_checkpoint

    path = folder / "shards"
    if not path.exists():
        save_checkpoint(path, *trained())
    pruner = dp.Pruner(net(), INPUTS, strength=1e-3, remove_every=1)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2))
    arguments = {"folder": path, "pruner": pruner, "optimizer": optimizer}
    return Good(load_checkpoint, arguments, (pruner, optimizer))


def _loading_module(folder):
    from lightning.pytorch import LightningModule

    from diffprune.integrations.lightning import load_from_checkpoint

    path = folder / "nothing.ckpt"
    arguments = {"cls": LightningModule, "checkpoint_path": path}
    return Good(load_from_checkpoint, arguments)


def _benchmarking(_):
    dense, other = net(), small()
    arguments = {"dense": dense, "small": other, "example_inputs": INPUTS, "rounds": 3}
    return Good(dp.benchmark, arguments, (dense, other))


def _gate(method, **arguments):
    gate = dp.Gate(4)
    return Good(getattr(gate, method), arguments, (gate,))


def _bernoulli(method, **arguments):
    base = torch.distributions.Normal(torch.zeros(3), 1.0)
    made = gates.ApproximateBernoulli(base)
    return Good(getattr(made, method), arguments)


def _weight(_):
    layer = nn.Linear(3, 2)
    return Good(dp.gate_weight, {"layer": layer, "name": "weight"}, (layer,), dp.Gate)


def _accelerate(_):
    import accelerate

    from diffprune.integrations.accelerate import register

    pruner, optimizer = trained()
    arguments = {"accelerator": accelerate.Accelerator(cpu=True), "pruner": pruner}
    arguments["optimizers"] = (optimizer,)
    return Good(register, arguments, ())


def _peft(_):
    from peft import LoraConfig, get_peft_model

    from diffprune.integrations.peft import write_ranks_

    model = get_peft_model(net(), LoraConfig(target_modules=["0", "3"], r=2))
    return Good(write_ranks_, {"model": model, "adapter": "default"}, (model,))


def _callback(module):
    found = importlib.import_module(f"diffprune.integrations.{module}").Pruning
    return Good(found, {"example_inputs": INPUTS, "strength": 1e-3}, (), dp.Pruner)


def _pretrained(folder):
    from diffprune.integrations.transformers import load_pretrained

    return Good(load_pretrained, {"folder": folder / "nothing"})


def _same(_, x):
    return x.axes


def _rule(_):
    model = net()
    arguments = {"rules": {torch.ops.aten.relu: _same}, "model": model}
    arguments |= {"example_inputs": INPUTS}
    return Good(testing.check_rule, arguments, (model,))


FIND = dp.find_groups
REFERENCE = {"label": "theirs", "error": 1.0, "macs": 5, "parameters": 5}

GOOD: dict[str, Callable[[Path], Good]] = {
    "diffprune.Budget": lambda _: Good(dp.Budget, {"macs": 0.5, "steps": 3}),
    "diffprune.Gate": lambda _: Good(dp.Gate, {"size": 3}),
    "diffprune.Gate.forward": lambda _: _gate("forward", x=torch.ones(2, 4)),
    "diffprune.Gate.keep_": lambda _: _gate("keep_", mask=torch.arange(4) < 2),
    "diffprune.Gate.draw": lambda _: _gate("draw", examples=2),
    "diffprune.Pruner": lambda _: of_model(dp.Pruner, on(strength=1e-3)),
    "diffprune.Pruner.add_copy": _copying,
    "diffprune.Pruner.add_to": _adding,
    "diffprune.Pruner.add_wrapper": _wrapping,
    "diffprune.Pruner.shard_": _sharding,
    "diffprune.Pruner.finalize": lambda _: of_pruner(
        "finalize", optimizers=lambda _, optimizer: (optimizer,)
    ),
    "diffprune.Pruner.load_state_dict": _loading_state,
    "diffprune.Pruner.parameter_groups": lambda _: of_pruner("parameter_groups"),
    "diffprune.Pruner.remove_closed_": lambda _: of_pruner(
        "remove_closed_", optimizers=lambda _, optimizer: (optimizer,)
    ),
    "diffprune.Pruner.step": lambda _: of_pruner(
        "step", optimizers=lambda _, optimizer: (optimizer,)
    ),
    "diffprune.benchmark": _benchmarking,
    "diffprune.by_macs": lambda _: Good(dp.by_macs, {"strength": 1e-3}),
    "diffprune.by_parameters": lambda _: Good(dp.by_parameters, {"strength": 1e-3}),
    "diffprune.compact": lambda _: of_model(dp.compact, on(), FIND),
    "diffprune.expected_l0": lambda _: of_model(
        dp.expected_l0, {"model": gated(), "strength": 1e-3}
    ),
    "diffprune.find_groups": lambda _: of_model(FIND, on()),
    "diffprune.fold_gates": lambda _: Good(dp.fold_gates, {"module": net()}),
    "diffprune.gate_weight": _weight,
    "diffprune.load_checkpoint": _resuming,
    "diffprune.load_pruned": lambda folder: of_model(
        dp.load_pruned, {"model": net(), "folder": pruned(folder)}
    ),
    "diffprune.parameter_groups": lambda _: of_model(
        dp.parameter_groups, {"model": gated()}
    ),
    "diffprune.remove": lambda _: of_model(dp.remove, on(keep=keep()), FIND),
    "diffprune.save_checkpoint": _saving,
    "diffprune.save_pruned": lambda folder: of_model(
        dp.save_pruned, {"model": net(), "folder": new(folder)}
    ),
    "diffprune.shrink": lambda _: of_model(
        dp.shrink,
        {"model": net(), "data": data(), "loss": loss, "budget": dp.Budget(macs=0.7)},
        FIND,
    ),
    "diffprune.to_exported_program": lambda _: of_model(dp.to_exported_program, on()),
    "diffprune.to_onnx": lambda folder: of_model(
        dp.to_onnx, on(path=new(folder, "model.onnx"))
    ),
    "diffprune.gates.ApproximateBernoulli": lambda _: Good(
        gates.ApproximateBernoulli,
        {"base": torch.distributions.Normal(torch.zeros(3), 1.0)},
    ),
    "diffprune.gates.ApproximateBernoulli.expand": lambda _: _bernoulli(
        "expand", batch_shape=(2,)
    ),
    "diffprune.gates.ApproximateBernoulli.prob_open": lambda _: _bernoulli("prob_open"),
    "diffprune.gates.ApproximateBernoulli.rsample": lambda _: _bernoulli("rsample"),
    "diffprune.gates.ApproximateBernoulli.sample": lambda _: _bernoulli("sample"),
    "diffprune.gates.g": lambda _: Good(gates.g, {"sample": torch.zeros(3)}),
    "diffprune.gates.load_sparse": lambda folder: of_model(
        gates.load_sparse, {"model": net(), "path": sparse(folder)}
    ),
    "diffprune.gates.named_gates": lambda _: of_model(
        gates.named_gates, {"model": gated()}
    ),
    "diffprune.gates.save_sparse": lambda folder: of_model(
        gates.save_sparse, {"model": net(), "path": new(folder)}
    ),
    "diffprune.surgery.Groups.keep": lambda _: Good(groups().keep, {"masks": keep()}),
    "diffprune.surgery.Plan.from_json": lambda _: Good(
        surgery.Plan.from_json, {"text": plan().to_json()}
    ),
    "diffprune.surgery.Plan.then": lambda _: Good(
        surgery.Plan({}, {}, {}).then, {"later": plan()}
    ),
    "diffprune.surgery.apply_plan": lambda _: of_model(
        surgery.apply_plan, {"model": net(), "plan": plan()}
    ),
    "diffprune.surgery.apply_plan_": lambda _: of_model(
        surgery.apply_plan_, {"model": net(), "plan": plan()}
    ),
    "diffprune.surgery.certify": lambda _: Good(
        surgery.certify, {"original": net(), "small": net(), "inputs": INPUTS}
    ),
    "diffprune.surgery.compaction": lambda _: of_model(surgery.compaction, on(), FIND),
    "diffprune.surgery.mask": lambda _: of_model(
        surgery.mask, {"model": net(), "groups": groups(), "keep": keep()}
    ),
    "diffprune.surgery.plan_removal": lambda _: Good(
        surgery.plan_removal, {"groups": groups(), "keep": keep()}
    ),
    "diffprune.surgery.removal": lambda _: of_model(
        surgery.removal, on(groups=groups(), keep=keep())
    ),
    "diffprune.rules.OpRule": lambda _: Good(rules.OpRule, {"axes": lambda _, x: x}),
    "diffprune.testing.check_composition": lambda _: of_model(
        testing.check_composition, on(groups=groups()), FIND
    ),
    "diffprune.testing.check_gate": lambda _: Good(
        testing.check_gate, {"make_gate": dp.Gate, "sizes": (3,)}
    ),
    "diffprune.testing.check_groups": lambda _: of_model(
        testing.check_groups, on(groups=groups(), atol=1e-4), FIND
    ),
    "diffprune.testing.check_removal": lambda _: of_model(
        testing.check_removal, on(groups=groups(), atol=1e-4), FIND
    ),
    "diffprune.testing.check_round_trip": lambda _: of_model(
        testing.check_round_trip, on(make_model=net, groups=groups()), FIND
    ),
    "diffprune.testing.check_rule": _rule,
    "diffprune.testing.check_training_commutes": lambda _: of_model(
        testing.check_training_commutes, on(steps=1, atol=1e-3), dp.Pruner
    ),
    "diffprune.testing.random_keep": lambda _: Good(
        testing.random_keep, {"groups": groups()}
    ),
    "diffprune.lab.Front.figure": lambda folder: Good(
        lab.Front((lab.read_run(run(folder)),), frozenset()).figure,
        {"path": new(folder, "front.svg")},
    ),
    "diffprune.lab.Recipe": lambda _: Good(lab.Recipe, {"name": "a", "epochs": 2}),
    "diffprune.lab.Recipe.from_dict": lambda _: Good(
        lab.Recipe.from_dict, {"data": recipe().to_dict()}
    ),
    "diffprune.lab.Recipe.lr_factor": lambda _: Good(recipe().lr_factor, {"epoch": 1}),
    "diffprune.lab.Recorder.epoch": lambda folder: of_recorder(
        folder, "epoch", number=1, loss=0.5, test_error=3.0
    ),
    "diffprune.lab.Recorder.finish": lambda folder: of_recorder(
        folder, "finish", test_error=3.0
    ),
    "diffprune.lab.Reference": lambda _: Good(lab.Reference, REFERENCE),
    "diffprune.lab.Search": lambda _: Good(
        lab.Search, {"ranges": {"macs": (0.2, 0.5)}, "trials": 2}
    ),
    "diffprune.lab.Task": lambda _: Good(lab.Task, vars(task())),
    "diffprune.lab.read_run": lambda folder: Good(
        lab.read_run, {"folder": run(folder)}
    ),
    "diffprune.lab.record": lambda folder: Good(
        lab.record,
        {
            "pruner": trained()[0],
            "recipe": recipe(strength=1e-3),
            "out": new(folder),
            "make_model": net,
        },
    ),
    "diffprune.lab.sweep": lambda folder: Good(
        lab.sweep,
        {
            "task": f"{run(folder).parent / 'mine.py'}:task",
            "vary": {"strength": [1e-3]},
            "out": new(folder),
            "recipe": recipe(strength=1e-3),
        },
    ),
    "diffprune.lab.tensorboard": lambda folder: Good(
        lab.tensorboard, {"folder": new(folder)}
    ),
    "diffprune.lab.train": lambda folder: Good(
        lab.train,
        {"make_task": task, "recipe": recipe(strength=1e-3), "out": new(folder)},
    ),
    "diffprune.lab.write_report": lambda folder: Good(
        lab.write_report,
        {
            "runs": [run(folder)],
            "out": new(folder, "report.html"),
            "references": [lab.Reference(**REFERENCE)],
            "measure": False,
        },
    ),
    "diffprune.integrations.accelerate.register": _accelerate,
    "diffprune.integrations.fsdp.load_checkpoint": _loading_shards,
    "diffprune.integrations.fsdp.save_checkpoint": _saving_shards,
    "diffprune.integrations.lightning.load_from_checkpoint": _loading_module,
    "diffprune.integrations.lightning.Pruning": lambda _: _callback("lightning"),
    "diffprune.integrations.peft.write_ranks_": _peft,
    "diffprune.integrations.transformers.Pruning": lambda _: _callback("transformers"),
    "diffprune.integrations.transformers.load_pretrained": _pretrained,
}
