"""Which integers in a forward pass follow a cut, and which stop it.

An integer argument that must equal the length of an axis is safe if it was read from a
module attribute (which a removal then sets), from a shape, or computed from these such
that it stays right whatever is cut. A literal is not: its axis is frozen, and the
report names the line that fixes the width.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from diffprune._graph.axes import (
    Atom,
    Axis,
    MisalignedError,
    atoms,
    atoms_of,
    count,
    size,
)
from diffprune._graph.infer import Solution
from diffprune._graph.int_sources import (
    Attribute,
    Dimension,
    Question,
    Source,
    evaluate,
    leaves,
)
from diffprune._graph.rule_api import Frozen, SizeUse, Value

Values: TypeAlias = Callable[[Attribute | Dimension], int]


def settle(
    solution: Solution, known: Mapping[Attribute, Axis]
) -> dict[Attribute, Axis]:
    """Find the axis each attribute must be as long as; freeze what cannot follow.

    Args:
        solution: The solved traces.
        known: Attributes whose axis is known already, such as those of torch's layers.
    """
    settler = _Settler(solution, known)
    settler.literals()
    settler.bind()
    settler.fixed()
    settler.formulas()
    settler.lengths_of_inputs()
    settler.comparisons()
    return settler.attributes


def layer_attributes(model: nn.Module, solution: Solution) -> dict[Attribute, Axis]:
    """Widths that layers report about themselves, such as `out_features`.

    torch's own layers compute with their tensors and never read them, but `repr` and
    user code do.
    """
    names: dict[Value, list[str]] = {}
    for name, value in solution.tensors.items():
        names.setdefault(value, []).append(name.rpartition(".")[0])
    modules = dict(model.named_modules(remove_duplicate=False))
    found: dict[Attribute, Axis] = {}
    for width in solution.facts.layer_widths:
        paths = [width.module] if width.weight is None else names[width.weight]
        for path in paths:
            value = vars(modules[path]).get(width.attribute) if path in modules else 0
            if type(value) is int and value == size(width.axis):
                found.setdefault(Attribute(path, width.attribute, value), width.axis)
    return {**_uncalled(modules, solution), **found}


def _uncalled(
    modules: Mapping[str, nn.Module], solution: Solution
) -> dict[Attribute, Axis]:
    """Widths of layers whose weight others read, and perhaps compute with first."""
    return {
        Attribute(path, attribute, getattr(module, attribute)): weight.axes[dim]
        for path, module in modules.items()
        if (weight := solution.tensors.get(f"{path}.weight".lstrip("."))) is not None
        for attribute, dim in weight_dims(module).items()
        if getattr(module, attribute) == size(weight.axes[dim])
    }


def weight_dims(module: nn.Module) -> dict[str, int]:
    """For each width that a layer of torch reports, the dim of its weight it is.

    Examples:
        >>> weight_dims(nn.Linear(2, 3))
        {'out_features': 0, 'in_features': 1}
    """
    if isinstance(module, nn.Linear):
        return {"out_features": 0, "in_features": 1}
    if isinstance(module, nn.Embedding):
        return {"num_embeddings": 0, "embedding_dim": 1}
    if isinstance(module, nn.GroupNorm):
        return {"num_channels": 0}
    if isinstance(module, _NormBase):
        return {"num_features": 0}
    if isinstance(module, _ConvNd) and module.groups == 1:
        own, read = ("in", "out") if module.transposed else ("out", "in")
        return {f"{own}_channels": 0, f"{read}_channels": 1}
    return {}


def _other_sizes(atom: Atom) -> set[int]:
    """Sizes to try: those next to its own, and far smaller ones."""
    tried = (atom.size + 1, *(atom.size - n for n in (1, 2, 3)), atom.size // 2, 1)
    return {size for size in tried if size > 0}


def _joint_sizes(atoms: Sequence[Atom], *, grow: bool = True) -> list[dict[Atom, int]]:
    """Sizes to try for several atoms at once; nothing for one, which is tried alone."""
    if len(atoms) < 2:
        return []
    draw = Random(0)  # noqa: S311 - no secret
    steps = (1, -1) if grow else (-1,)
    return [
        *({a: max(1, a.size + s * n) for n, a in enumerate(atoms, 1)} for s in steps),
        dict.fromkeys(atoms, 1),
        {atom: max(1, atom.size // 2) for atom in atoms},
        *({atom: draw.randint(1, atom.size) for atom in atoms} for _ in range(12)),
    ]


class _Settler:
    def __init__(self, solution: Solution, known: Mapping[Attribute, Axis]) -> None:
        self.solution = solution
        self.attributes = dict(known)
        self.sizes = [trace.sizes for trace in solution.traces]

    def literals(self) -> None:
        """A width written as a number cannot follow a cut."""
        for use in self.solution.facts.size_uses:
            if use.source is None:
                fix = "Write -1, or read the width from a shape or an attribute."
                reason = Frozen("the code fixes its width", use.where, fix)
                self.solution.algebra.freeze(use.axis, reason)

    def bind(self) -> None:
        """An attribute used for several axes keeps them equally long."""
        for use in self.solution.facts.size_uses:
            if isinstance(use.source, Attribute):
                self._bind(use.source, use.axis)
        for one, other in (pair for log in self.sizes for pair in log.equal):
            axes = [self._axis(one), self._axis(other)]
            if isinstance(one, Attribute) and axes[1] is not None:
                self._bind(one, axes[1])
            elif isinstance(other, Attribute) and axes[0] is not None:
                self._bind(other, axes[0])
            elif axes[0] is not None and axes[1] is not None:
                self._tie(axes[0], axes[1])

    def fixed(self) -> None:
        """A width that enters the arithmetic itself would change the result.

        Not if what is made of it is the same at any width, as `0 * width` is.
        """
        for source, where in self.solution.facts.numbers:
            why = f"its length is used as a number: {source}"
            self._freeze_number(source, Frozen(why, where))
        for source, why in (item for log in self.sizes for item in log.fixed.items()):
            self._freeze_number(source, Frozen(why))

    def formulas(self) -> None:
        """Change one width at a time, then all: does every formula keep up?"""
        uses = [
            (use, use.source)
            for use in self.solution.facts.size_uses
            if use.source is not None
        ]
        for use, source in uses:
            for atom in self._involved(source, use.axis):
                tried = ({atom: size} for size in _other_sizes(atom))
                if not all(self._holds(use.axis, source, each) for each in tried):
                    self._freeze_atoms([atom], use)
        for use, source in uses:
            involved = self._involved(source, use.axis)
            if not all(
                self._holds(use.axis, source, x) for x in _joint_sizes(involved)
            ):
                self._freeze_atoms(involved, use)

    def lengths_of_inputs(self) -> None:
        """Where an input's length divides a width, another input divides it elsewhere.

        The first units of `y[:, : x.shape[1]]` follow the input; so does where the
        others begin. A length that some tensor of the model has is no input's alone.
        """
        algebra, tensors = self.solution.algebra, self.solution.tensors.values()
        held = [algebra.resolve(axis) for value in tensors for axis in value.axes]
        known = atoms_of(held)
        for use in self.solution.facts.size_uses:
            parts = {*atoms(algebra.resolve(use.axis))}
            if parts <= known and self._follows_an_input(use, known):
                why = f"the length of an input divides it: {use.source}"
                for axis in held:
                    if not parts.isdisjoint(atoms(axis)):
                        algebra.freeze(axis, Frozen(why, use.where))

    def _follows_an_input(self, use: SizeUse, known: set[Atom]) -> bool:
        """Whether it changes with a length that no tensor of the model has.

        What is computed from such a length may not: `(b g) // b` is always `g`.
        """
        axes = (self._axis(leaf) for leaf in leaves(use.source or 0))
        lengths = ({*atoms(self.solution.algebra.resolve(axis or ()))} for axis in axes)
        inputs = [atom for some in lengths if known.isdisjoint(some) for atom in some]
        return use.source is not None and not all(
            self._holds(use.axis, use.source, {atom: size})
            for atom in inputs
            for size in _other_sizes(atom)
        )

    def comparisons(self) -> None:
        """A width that the code compares may not shrink past the answer."""
        asked = dict.fromkeys(q for log in self.sizes for q in log.asked)
        for question in asked:
            answer = question.answer(lambda source: source.value)
            reason = Frozen(f"its length is compared: {question}")
            for atom in self._involved(question.left, right=question.right):
                tried = ({atom: size} for size in range(1, atom.size))
                if any(self._answer(question, sizes) != answer for sizes in tried):
                    self.solution.algebra.freeze((atom,), reason)
            involved = self._involved(question.left, right=question.right)
            together = _joint_sizes(involved, grow=False)
            if any(self._answer(question, sizes) != answer for sizes in together):
                self.solution.algebra.freeze(tuple(involved), reason)

    def _answer(self, question: Question, sizes: dict[Atom, int]) -> bool | None:
        try:
            return question.answer(self._values(sizes))
        except ZeroDivisionError:
            return None

    def _holds(self, axis: Axis, source: Source, sizes: dict[Atom, int]) -> bool:
        return self._value(source, sizes) == self._length(axis, sizes)

    def _value(self, source: Source, sizes: dict[Atom, int]) -> int | None:
        """What a source comes to when atoms have other sizes; None if nothing does."""
        try:
            return evaluate(source, self._values(sizes))
        except ZeroDivisionError:
            return None

    def _values(self, sizes: dict[Atom, int]) -> Values:
        """What attributes and dimensions are when atoms have other sizes."""

        def value(source: Attribute | Dimension) -> int:
            its_axis = self._axis(source)
            return source.value if its_axis is None else self._length(its_axis, sizes)

        return value

    def _length(self, axis: Axis, sizes: dict[Atom, int]) -> int:
        return count(self.solution.algebra.resolve(axis), sizes)

    def _involved(
        self, source: Source | int, axis: Axis | None = None, right: Source | int = 0
    ) -> list[Atom]:
        axes = [axis, *map(self._axis, (*leaves(source), *leaves(right)))]
        found = (self.solution.free(axis) for axis in axes if axis is not None)
        return list(dict.fromkeys(atom for some in found for atom in some))

    def _freeze_number(self, source: Source, reason: Frozen) -> None:
        number = evaluate(source, lambda leaf: leaf.value)
        involved = self._involved(source)
        tried = [{atom: size} for atom in involved for size in _other_sizes(atom)]
        if not all(
            self._value(source, sizes) == number
            for sizes in (*tried, *_joint_sizes(involved))
        ):
            self._freeze_leaves(source, reason)

    def _freeze_leaves(self, source: Source, reason: Frozen) -> None:
        for leaf in leaves(source):
            axis = self._axis(leaf)
            if axis is not None:
                self.solution.algebra.freeze(axis, reason)

    def _freeze_atoms(self, found: Iterable[Atom], use: SizeUse) -> None:
        why = (
            f"the code computes its width as {use.source}, which would not follow a cut"
        )
        fix = "Write -1, or read the width from the shape of the tensor itself."
        for atom in found:
            self.solution.algebra.freeze((atom,), Frozen(why, use.where, fix))

    def _bind(self, attribute: Attribute, axis: Axis) -> None:
        if attribute in self.attributes:
            self._tie(self.attributes[attribute], axis)
        else:
            self.attributes[attribute] = axis

    def _tie(self, one: Axis, other: Axis) -> None:
        """Equal lengths are kept equal by keeping the same units."""
        try:
            self.solution.algebra.unify(one, other)
        except MisalignedError:
            for axis in (one, other):
                reason = Frozen("its length must equal that of an unlike axis")
                self.solution.algebra.freeze(axis, reason)

    def _axis(self, source: Source) -> Axis | None:
        if isinstance(source, Attribute):
            return self.attributes.get(source)
        if isinstance(source, Dimension):
            value = self.solution.tokens.get(source.token)
            return None if value is None else value.axes[source.dim]
        return None
