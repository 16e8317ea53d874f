"""MNIST and CIFAR-10: fetched once, checked, and decoded."""
