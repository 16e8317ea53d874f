"""What share of public architectures can be pruned, and whether removal is exact.

    python -m benchmarks.coverage --only "resnet*"

`zoos` lists the models, `ours` and `peer` cut them, `verdict` judges any cut by the
same measure, `runner` isolates each run in a process, `table` prints the records.
"""
