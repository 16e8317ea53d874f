"""Gates: one number per unit, exactly zero when the unit is closed."""

from diffprune.gates.base import BaseGate as BaseGate
from diffprune.gates.distribution import ApproximateBernoulli as ApproximateBernoulli
from diffprune.gates.gate import Gate as Gate
from diffprune.gates.penalty import (
    expected_l0 as expected_l0,
    named_gates as named_gates,
    parameter_groups as parameter_groups,
)
from diffprune.gates.protocol import GateLike as GateLike
from diffprune.gates.sparse import (
    load_sparse as load_sparse,
    save_sparse as save_sparse,
)
from diffprune.gates.transform import g as g
from diffprune.gates.weights import fold_gates as fold_gates, gate_weight as gate_weight
