"""Cut a model of transformers by all that can be removed, and by what its config says.

Both are checked: outputs stay, and plain `from_pretrained` gives the second one back.
"""

import tempfile
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from torch import Tensor

import diffprune as dp
from diffprune._surgery.remove import removal
from diffprune.errors import ArgumentError
from diffprune.integrations._hf_widths import ConfigWidths

from .transformer_cases import CASES, INPUTS, MANY_HEADS, PARTS, Case
from .transformer_models import Result


def look_at(name: str) -> Result:
    """Cut an architecture in both ways."""
    case = CASES[name]
    model, inputs = build(case), dict(INPUTS[case.inputs])
    groups = dp.find_groups(model, inputs)
    parts = {**PARTS, **case.parts}
    found = removal(model, inputs, groups, keep=_fewer(groups)).plan.certificate
    assert found is not None  # noqa: S101 - a removal has one
    widths = _widths(model, inputs)
    wide = _widths(build(case, MANY_HEADS), inputs) if case.may_have_many else None
    return Result(
        model=name,
        version=transformers.__version__,
        kind=case.kind,
        parts=list(dict.fromkeys(parts[group.size] for group in groups)),
        relative=found.max_relative,
        numbers=_numbers(widths),
        with_many_heads=_numbers(wide) if case.may_have_many else None,
        is_loaded=widths is not None and _is_loaded(model, inputs, widths),
    )


def build(case: Case, other: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - of any class
    """The model, with some numbers of its config changed."""
    torch.manual_seed(0)
    known = getattr(transformers, case.config)
    sizes = {**case.sizes, **(other or {})}
    return getattr(transformers, case.kind)(known(**sizes)).eval()


def _widths(model: Any, inputs: Mapping[str, Tensor]) -> ConfigWidths | None:  # noqa: ANN401 - as above
    try:
        return ConfigWidths.of(model, inputs, {}, equal=True, per_layer=False)
    except ArgumentError:
        return None


def _numbers(widths: ConfigWidths | None) -> list[str]:
    found = widths.classes if widths is not None else ()
    return sorted(" and ".join(map(str, one.settings)) for one in found)


def _fewer(groups: Any) -> dict[str, Tensor]:  # noqa: ANN401 - of diffprune
    return {g.name: torch.arange(g.size) > 0 for g in groups if g.size > 1}


def _is_loaded(model: Any, inputs: Mapping[str, Tensor], widths: ConfigWidths) -> bool:  # noqa: ANN401 - as above
    """Whether a model that its config can describe survives saving and loading."""
    options = widths.options({})
    groups = dp.find_groups(model, inputs, **options)
    keep = _fewer(groups)
    small = dp.remove(model, inputs, keep=keep, **options)
    widths.write_(small, groups.sizes | {n: int(m.sum()) for n, m in keep.items()})
    with tempfile.TemporaryDirectory() as folder:
        small.save_pretrained(folder)
        again = type(small).from_pretrained(folder).eval()
    if _has_experts(again):  # which run otherwise at first, and round differently
        again.set_experts_implementation("batched_mm")
    with torch.no_grad():
        return torch.equal(again(**inputs)[0], small(**inputs)[0])


def _has_experts(model: Any) -> bool:  # noqa: ANN401 - as above
    return any(name.endswith(".experts") for name, _ in model.named_modules())
