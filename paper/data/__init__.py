"""MNIST and CIFAR-10 as tensors: fetched once, verified, kept in the cache."""
