"""Which integers in a forward pass follow a cut, and which stop it. Knows no ops.

An integer argument that must equal the length of an axis is safe if it was read from a
module attribute (which a removal then sets), from a shape, or computed from these such
that it stays right whatever is cut. A literal is not: its axis is frozen, and the
report names the line that fixes the width.
"""

from collections.abc import Iterable

from torch import nn

from diffprune._graph.axes import Atom, Axis, MisalignedError, count, size
from diffprune._graph.infer import Solution
from diffprune._graph.int_tracking import Attribute, Dimension, Source, evaluate, leaves
from diffprune._graph.rule_api import Frozen, SizeUse, Value


def settle(solution: Solution) -> dict[Attribute, Axis]:
    """Find the axis each attribute must be as long as; freeze what cannot follow."""
    settler = _Settler(solution)
    settler.literals()
    settler.bind()
    settler.fixed()
    settler.formulas()
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
    return found


class _Settler:
    def __init__(self, solution: Solution) -> None:
        self.solution = solution
        self.attributes: dict[Attribute, Axis] = {}
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
        """A width that enters the arithmetic itself would change the result."""
        for source, where in self.solution.facts.numbers:
            why = f"its length is used as a number: {source}"
            self._freeze_leaves(source, Frozen(why, where))
        for source, why in (item for log in self.sizes for item in log.fixed.items()):
            self._freeze_leaves(source, Frozen(why))

    def formulas(self) -> None:
        """Change one width at a time, then all: does every formula keep up?"""
        uses = [
            (use, use.source)
            for use in self.solution.facts.size_uses
            if use.source is not None
        ]
        for use, source in uses:
            for atom in self._involved(use, source):
                if not self._holds(use.axis, source, {atom: atom.size + 1}):
                    self._freeze_atoms([atom], use)
        for use, source in uses:
            involved = enumerate(self._involved(use, source), 1)
            changed = {atom: atom.size + n for n, atom in involved}
            if not self._holds(use.axis, source, changed):
                self._freeze_atoms(changed, use)

    def _holds(self, axis: Axis, source: Source, sizes: dict[Atom, int]) -> bool:
        def value(source: Attribute | Dimension) -> int:
            its_axis = self._axis(source)
            return source.value if its_axis is None else self._length(its_axis, sizes)

        try:
            return evaluate(source, value) == self._length(axis, sizes)
        except ZeroDivisionError:
            return False

    def _length(self, axis: Axis, sizes: dict[Atom, int]) -> int:
        return count(self.solution.algebra.resolve(axis), sizes)

    def _involved(self, use: SizeUse, source: Source) -> list[Atom]:
        axes = [use.axis, *map(self._axis, leaves(source))]
        found = (self.solution.free(axis) for axis in axes if axis is not None)
        return list(dict.fromkeys(atom for some in found for atom in some))

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
