"""Which units to keep: diffprune against Torch-Pruning, at equal cost and compute."""
