"""Apply the rules of the ops to a model's traces.

The result, a `Solution`, holds every tensor's axes in terms of final atoms, with the
reason beside each atom that may not be cut.
"""

import inspect
import operator
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from diffprune._core.leaves import leaves_of
from diffprune._core.modules import named_tensors
from diffprune._graph.axes import Algebra, Atom, Axis, atoms, atoms_of
from diffprune._graph.compositions import spell_out_
from diffprune._graph.int_tracking import labels, token
from diffprune._graph.lines import line_of
from diffprune._graph.ops import BLIND, RULES, find_rule, functional_op
from diffprune._graph.rule_api import (
    Axes,
    Call,
    Contraction,
    Facts,
    Frozen,
    Op,
    OpRule,
    Product,
    Rule,
    Step,
    Unsupported,
    Value,
    Where,
    as_rule,
)
from diffprune._graph.tracing import Trace
from diffprune._graph.value_lengths import is_inlined
from diffprune.errors import RuleError

Environment: TypeAlias = dict[fx.Node, Any]


@dataclass
class Solution:
    """Everything the traces say about axes."""

    algebra: Algebra[Frozen]
    tensors: dict[str, Value]
    parameter_names: frozenset[str]
    facts: Facts = field(default_factory=Facts)
    steps: list[Step] = field(default_factory=list[Step])
    tokens: dict[str, Value] = field(default_factory=dict[str, Value])
    traces: tuple[Trace, ...] = ()
    products: tuple[Product, ...] = ()

    def axes(self, value: Value) -> Axes:
        """Axes of a value in terms of final atoms."""
        return tuple(map(self.algebra.resolve, value.axes))

    def atoms(self, value: Value) -> set[Atom]:
        """The final atoms of a value."""
        return atoms_of(self.axes(value))

    def parameters(self) -> list[Axes]:
        """Axes of every parameter; a tied one counts once."""
        values = dict.fromkeys(self.tensors[name] for name in self.parameter_names)
        return [self.axes(value) for value in values]

    def sums(self) -> dict[Atom, list[Contraction]]:
        """All sums over each atom, in the order of the traces."""
        found: dict[Atom, list[Contraction]] = {}
        for contraction in self.facts.contractions:
            for atom in dict.fromkeys(atoms(self.algebra.resolve(contraction.axis))):
                found.setdefault(atom, []).append(contraction)
        return found

    def coupled(self) -> set[Atom]:
        """Atoms that norms take their statistics over."""
        return atoms_of(self.algebra.resolve(axis) for axis, _ in self.facts.coupled)

    def free(self, axis: Axis) -> list[Atom]:
        """Atoms of the axis that may be cut."""
        found = atoms(self.algebra.resolve(axis))
        return [atom for atom in found if self.algebra.reason(atom) is None]


def solve(
    model: nn.Module, traces: Sequence[Trace], rules: Mapping[Op, Rule]
) -> Solution:
    """Apply the rules to every op; tied and shared tensors are one value."""
    algebra = Algebra[Frozen]()
    parameters = dict(model.named_parameters(remove_duplicate=False))
    solution = Solution(
        algebra,
        _named_values(model, algebra),
        frozenset(parameters),
        traces=tuple(traces),
    )
    known = {**RULES, **{op: as_rule(rule) for op, rule in rules.items()}}
    for trace in traces:
        spell_out_(trace.owner, known)
        _Run(solution, trace.tensor_names, known).graph(trace.owner, None)
        # What a forward pass costs is what it costs in eval mode, traced first.
        solution.products = solution.products or tuple(solution.facts.products)
    return solution


def _named_values(model: nn.Module, algebra: Algebra[Frozen]) -> dict[str, Value]:
    first: dict[int, Value] = {}
    named = dict[str, Value]()
    for name, tensor in named_tensors(model).items():
        axes = tuple(algebra.fresh(length) for length in tensor.shape)
        value = Value(axes, name, is_mask=tensor.dtype == torch.bool)
        named[name] = first.setdefault(id(tensor), value)
    return named


class _Run:
    """One walk over a graph; nested graphs (no_grad, autocast) are walked in place."""

    def __init__(
        self, solution: Solution, names: Mapping[str, str], rules: Mapping[Op, OpRule]
    ) -> None:
        self.solution = solution
        self.names = names
        self.rules = rules
        self.unused = set[fx.Node]()

    def graph(self, owner: fx.GraphModule, operands: Sequence[Any] | None) -> Any:  # noqa: ANN401 - values as nested as the output is
        env: Environment = {}
        given = iter(operands) if operands is not None else None
        self.unused |= _unused(owner.graph)
        result = None
        for node in owner.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given) if given else self._placeholder(node)
            elif node.op == "get_attr":
                env[node] = getattr(owner, node.target)
            elif node.op == "call_function":
                env[node] = self._call(node, env)
            elif node.op == "output":
                result = fx.map_arg(node.args[0], env.__getitem__)
            self._remember_token(node, env.get(node))
        if given is None:
            self._freeze_all(leaves_of(Value, result), Frozen("an output of the model"))
        return result

    def _placeholder(self, node: fx.Node) -> object:
        if node.name in self.names:
            return self.solution.tensors[self.names[node.name]]
        if not isinstance(node.meta.get("val"), Tensor):
            return node.meta.get("val")
        (value,) = _as_values([self._fresh(node.meta["val"])], [node.meta["val"]])
        self._freeze_all([value], Frozen("an input of the model, or a constant"))
        return value

    def _call(self, node: fx.Node, env: Environment) -> Any:  # noqa: ANN401 - as nested as the op's result
        args: Any = fx.map_arg(node.args, env.__getitem__)
        kwargs: Any = fx.map_arg(node.kwargs, env.__getitem__)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if is_inlined(node):
            inside = [isinstance(arg, fx.GraphModule) for arg in args].index(True)
            return self.graph(args[inside], args[inside + 1 :])
        results = node.meta.get("val")
        if not leaves_of(Tensor, results):
            return results
        outputs = self._apply(node, args, kwargs)
        return outputs[0] if isinstance(results, Tensor) else outputs

    def _apply(
        self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Value, ...]:
        call = self._describe(node)
        op = cast("OpOverload", node.target)
        rule = find_rule(op, self.rules) or OpRule(_no_rule)
        results = leaves_of(Tensor, node.meta["val"])
        try:
            axes = ask(rule.axes, call.where, call, *args, **kwargs)
            outputs = _as_values(axes, results)
        except Unsupported:
            rule = OpRule(_no_rule)
            outputs = _as_values([call.fresh(*s) for s in call.shapes], results)
            self._refuse(call, leaves_of(Value, (args, kwargs, outputs)))
        call.rest_are_numbers()
        step = Step(op, functional_op(op), rule, call, args, kwargs, outputs, node)
        self.solution.steps.append(step)
        return outputs

    def _refuse(self, call: Call, values: Iterable[Value]) -> None:
        fix = (
            f"Teach it with `rules={{torch.ops.{call.where.op}: rule}}`, or leave "
            "these layers out with `freeze=[...]`."
        )
        if "grouped_mm" in call.where.op:
            fix = (
                "Experts of transformers can be cut as "
                '`model.set_experts_implementation("batched_mm")` computes them; '
                "set it back afterwards. Or leave these layers out: `freeze=[...]`."
            )
        if "." not in call.where.op:  # no op at all, such as what `vmap` calls
            fix = "Write it without `torch.vmap`, or leave these layers out."
        reason = Frozen(
            "no rule says how this form of op maps channels", call.where, fix
        )
        self._freeze_all(values, reason)

    def _describe(self, node: fx.Node) -> Call:
        results = leaves_of(Tensor, node.meta["val"])
        shapes = tuple(tuple(result.shape) for result in results)
        algebra, facts = self.solution.algebra, self.solution.facts
        is_used = node not in self.unused
        return Call(where(node), shapes, algebra, facts, labels(node), is_used)

    def _remember_token(self, node: fx.Node, value: object) -> None:
        name = token(node)
        if name is not None and isinstance(value, Value):
            self.solution.tokens[name] = value

    def _fresh(self, tensor: Tensor) -> Axes:
        return tuple(self.solution.algebra.fresh(length) for length in tensor.shape)

    def _freeze_all(self, values: Iterable[Value], reason: Frozen) -> None:
        for value in values:
            for axis in value.axes:
                self.solution.algebra.freeze(axis, reason)


def _unused(graph: fx.Graph) -> set[fx.Node]:
    """Nodes on whose values nothing depends, and which change no tensor either."""
    found = set[fx.Node]()
    for node in reversed(graph.nodes):
        op = node.target
        is_pure = isinstance(op, OpOverload) and not op._schema.is_mutable  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no public name
        blind = (user for user in node.users if functional_op(user.target) in BLIND)
        if (is_pure or op is operator.getitem) and found.issuperset(
            node.users.keys() - blind
        ):
            found.add(node)
    return found


def where(node: fx.Node) -> Where:
    """Where in the user's code a node comes from."""
    stack = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())
    target = node.target
    name = str(target) if isinstance(target, OpOverload) else _name(target)
    op = re.sub(r"\.(default|Tensor|int|dim)$", "", name)
    return Where(op, stack[-1][0], line_of(node))


def _name(function: object) -> str:
    return getattr(function, "__name__", str(function))


AnswerT = TypeVar("AnswerT")


def ask(
    rule: Callable[..., AnswerT],
    where: Where,
    *args: Any,  # noqa: ANN401 - those of the op
    **kwargs: Any,  # noqa: ANN401
) -> AnswerT:
    """Call a part of a rule with the arguments of an op.

    Raises:
        Unsupported: If the rule does not know this form of the op: it says so, or it
            does not take these arguments.
        RuleError: If the rule raises anything else.
    """
    try:
        return rule(*args, **kwargs)
    except Unsupported:
        raise
    except Exception as error:
        if isinstance(error, TypeError) and not _takes(rule, args, kwargs):
            raise Unsupported from error
        raise RuleError(_blame(rule, where, error)) from error


def _takes(
    rule: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    try:
        inspect.signature(rule).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _blame(rule: Callable[..., object], where: Where, error: Exception) -> str:
    """Name the op, the user's line, and the line of the rule that raised."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    name = getattr(rule, "__name__", type(rule).__name__)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (
        f"the rule `{name}` for {where} raised {said}{place}.\nCorrect the rule; where "
        "it does not know a form of the op, `raise diffprune.rules.Unsupported`."
    )


def _no_rule(*_args: object, **_kwargs: object) -> Axes:
    raise Unsupported


def _as_values(
    result: Axes | list[Axes], tensors: Sequence[Tensor]
) -> tuple[Value, ...]:
    """A list has the axes of each output; a tuple those that all of them share."""
    each = result if isinstance(result, list) else [result] * len(tensors)
    return tuple(
        Value(axes, is_mask=tensor.dtype == torch.bool)
        for axes, tensor in zip(each, tensors, strict=True)
    )
