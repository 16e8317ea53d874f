"""Every task of the paper by the name that `python -m paper train` takes.

Run folders of earlier versions name their tasks as functions of this file.
"""

from collections.abc import Mapping
from typing import Final

from diffprune.lab.training.task import MakeTask
from paper.lenet5_recipes import (
    TRIALS,
    digits_sigmoid,
    lenet5_digits,
    lenet5_mnist,
    lenet5_mnist_fading,
    lenet5_mnist_held,
    lenet5_mnist_held_out,
    lenet5_mnist_taught,
    table1_dense,
    table1_sigmoid,
    table1_sigmoid_budget,
    table1_sigmoid_fading,
    table1_sigmoid_held,
    table1_sigmoid_kept,
    table1_sigmoid_taught,
    table1_softmax,
    table1_softmax_held,
    table1_softmax_taught,
    table1_teacher,
)
from paper.recipe_parts import MakeRecipe
from paper.teaching import teacher
from paper.wide_resnet_recipes import (
    small_wrn_cifar10,
    small_wrn_dense,
    small_wrn_high,
    small_wrn_low,
    spare_wrn_cifar10,
    spare_wrn_dense,
    spare_wrn_high_budget,
    spare_wrn_low_budget,
    wide_wrn_cifar10,
    wide_wrn_dense,
    wide_wrn_high,
    wide_wrn_high_budget,
    wide_wrn_low,
    wide_wrn_low_budget,
    wider_wrn_cifar10,
    wider_wrn_dense,
    wider_wrn_high_budget,
    wider_wrn_low_budget,
    wider_wrn_low_taught,
    wider_wrn_taught,
    wrn_cifar10,
    wrn_high,
    wrn_low,
)

TASKS: Final[Mapping[str, tuple[MakeTask, MakeRecipe]]] = {
    "lenet5-sigmoid": (lenet5_mnist, table1_sigmoid),
    "lenet5-softmax": (lenet5_mnist, table1_softmax),
    "lenet5-sigmoid-fading": (lenet5_mnist_fading, table1_sigmoid_fading),
    "lenet5-sigmoid-held": (lenet5_mnist_held, table1_sigmoid_held),
    "lenet5-sigmoid-budget": (lenet5_mnist, table1_sigmoid_budget),
    "lenet5-sigmoid-taught": (lenet5_mnist_taught, table1_sigmoid_taught),
    "lenet5-softmax-held": (lenet5_mnist_held, table1_softmax_held),
    "lenet5-softmax-taught": (lenet5_mnist_taught, table1_softmax_taught),
    "lenet5-sigmoid-kept": (lenet5_mnist, table1_sigmoid_kept),
    "lenet5-dense": (lenet5_mnist, table1_dense),
    "frontier-teacher-normed": (teacher, table1_teacher),
    **{make(0).name: (lenet5_mnist_held_out, make) for make in TRIALS},
    "lenet5-digits": (lenet5_digits, digits_sigmoid),
    "wrn-28-10-low": (wrn_cifar10, wrn_low),
    "wrn-28-10-high": (wrn_cifar10, wrn_high),
    "wrn-10-1-low": (small_wrn_cifar10, small_wrn_low),
    "wrn-10-1-high": (small_wrn_cifar10, small_wrn_high),
    "wrn-10-1-dense": (small_wrn_cifar10, small_wrn_dense),
    "wrn-10-2-low": (wide_wrn_cifar10, wide_wrn_low),
    "wrn-10-2-high": (wide_wrn_cifar10, wide_wrn_high),
    "wrn-10-2-dense": (wide_wrn_cifar10, wide_wrn_dense),
    "wrn-10-2-low-budget": (wide_wrn_cifar10, wide_wrn_low_budget),
    "wrn-10-2-high-budget": (wide_wrn_cifar10, wide_wrn_high_budget),
    "wrn-10-4-dense": (wider_wrn_cifar10, wider_wrn_dense),
    "wrn-10-4-low-budget": (wider_wrn_cifar10, wider_wrn_low_budget),
    "wrn-10-4-high-budget": (wider_wrn_cifar10, wider_wrn_high_budget),
    "wrn-10-4-low-taught": (wider_wrn_taught, wider_wrn_low_taught),
    "wrn-10-4-few-dense": (spare_wrn_cifar10, spare_wrn_dense),
    "wrn-10-4-few-low-budget": (spare_wrn_cifar10, spare_wrn_low_budget),
    "wrn-10-4-few-high-budget": (spare_wrn_cifar10, spare_wrn_high_budget),
}
"""By the name of the recipe: what is trained, and how."""
