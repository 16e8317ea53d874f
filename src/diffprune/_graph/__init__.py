"""Which slices of a model's tensors can be removed together.

Everything outside this package imports from here.
"""

from diffprune._graph.axes import (
    Atom as Atom,
    Axis as Axis,
    Cat as Cat,
    atoms as atoms,
    atoms_of as atoms_of,
    count as count,
    mask as mask,
    rearranged as rearranged,
    size as size,
    volume as volume,
)
from diffprune._graph.export_settings import answered_questions as answered_questions
from diffprune._graph.find import (
    Heads as Heads,
    Norms as Norms,
    find_groups as find_groups,
)
from diffprune._graph.groups import (
    FrozenAxis as FrozenAxis,
    Groups as Groups,
    PruneGroup as PruneGroup,
    TensorAxis as TensorAxis,
    unknown_group as unknown_group,
)
from diffprune._graph.infer import Solution as Solution, where as where
from diffprune._graph.model_runs import (
    ExampleInputs as ExampleInputs,
    accepting as accepting,
    as_written as as_written,
    call_arguments as call_arguments,
    check_accepts as check_accepts,
    mode as mode,
    own_arguments as own_arguments,
    unchanged as unchanged,
)
from diffprune._graph.narrow_attention import (
    latent_sizes as latent_sizes,
    narrow as narrow,
    narrow_ as narrow_,
    narrow_named_ as narrow_named_,
    widen_ as widen_,
)
from diffprune._graph.ops import functional_op as functional_op
from diffprune._graph.ops.zero_rules import (
    all_of as all_of,
    always_zero as always_zero,
    any_of as any_of,
    zero_if_all as zero_if_all,
    zero_if_any as zero_if_any,
    zero_if_first as zero_if_first,
    zero_if_parts as zero_if_parts,
    zero_if_tried as zero_if_tried,
    zero_rows as zero_rows,
)
from diffprune._graph.rule_api import (
    SPATIAL as SPATIAL,
    Axes as Axes,
    Call as Call,
    Contraction as Contraction,
    MaskT as MaskT,
    Op as Op,
    OpRule as OpRule,
    Rule as Rule,
    Step as Step,
    Unsupported as Unsupported,
    Value as Value,
    Zeros as Zeros,
    never_zero as never_zero,
)
from diffprune._graph.tracing import (
    Trace as Trace,
    check_plain as check_plain,
    quiet as quiet,
    trace as trace,
)
from diffprune._graph.width_constraints import weight_dims as weight_dims
from diffprune._graph.zeros import (
    Memory as Memory,
    Silence as Silence,
    Silencer as Silencer,
    Spreading as Spreading,
    unit_numbers as unit_numbers,
    unit_occurrences as unit_occurrences,
)
