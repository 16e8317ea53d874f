"""The training loop of `diffprune train`, and what goes into it."""
