# The public names, and where they live; `__init__.py` reads this file.
from . import (
    errors as errors,
    gates as gates,
    rules as rules,
    surgery as surgery,
    testing as testing,
)
from ._budget import Budget as Budget
from ._costs.benchmark import benchmark as benchmark
from ._export import to_exported_program as to_exported_program, to_onnx as to_onnx
from ._graph import find_groups as find_groups
from ._io import load_pruned as load_pruned, save_pruned as save_pruned
from ._io.checkpoint import (
    load_checkpoint as load_checkpoint,
    save_checkpoint as save_checkpoint,
)
from ._pruner import (
    Pruner as Pruner,
    by_macs as by_macs,
    by_parameters as by_parameters,
)
from ._shrink import shrink as shrink
from ._surgery import compact as compact, remove as remove
from .gates import (
    Gate as Gate,
    expected_l0 as expected_l0,
    fold_gates as fold_gates,
    gate_weight as gate_weight,
    parameter_groups as parameter_groups,
)

__version__: str
