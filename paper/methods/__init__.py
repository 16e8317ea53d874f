"""The systems that Table 1 compares with, each as gates or layers of its own.

| system | where |
| --- | --- |
| Sparse VD | `variational_layers.SparseWeights` |
| GL | `group_lasso` |
| GD | `generalized_dropout` |
| SBP | `structured_bayesian_pruning` |
| BC-GNJ, BC-GHS | `bayesian_compression`, on `variational_layers.NormalWeights` |
| L0, L0 λ sep | `hard_concrete` |
| MDR-ExpUni | `mixture_gates` |
| constrained L0, not in Table 1 | `constrained_l0` |
| gradual magnitude, not in Table 1 | `gradual_magnitude` |

How each is trained is in `paper.comparison.systems`.
"""
