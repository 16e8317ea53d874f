"""The task that comes with diffprune: LeNet-5 on the digits of scikit-learn.

1,797 images of 8x8 pixels, enlarged to the 28x28 that LeNet-5 expects. The split is
fixed: a seed changes the training, never the test images. Nothing is downloaded.
"""

from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d, relu

from diffprune._core.types import Float
from diffprune.errors import MissingPackageError
from diffprune.lab.image_batches import Batches, Examples, Split
from diffprune.lab.training.recipe import Recipe
from diffprune.lab.training.task import Task

NUM_TRAIN, NUM_VALIDATION = 1197, 300
_SPLIT_SEED: Final = 0
_WHITEST: Final = 16.0
_EVALUATION_BATCH: Final = 300


@final
class LeNet5(nn.Module):
    """LeNet-5 with 20 and 50 filters and 500 hidden units; a plain module.

    Examples:
        >>> LeNet5()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(
        self, images: Float[Tensor, "batch 1 28 28"]
    ) -> Float[Tensor, "batch 10"]:
        """Class scores before the softmax."""
        x = max_pool2d(relu(self.conv1(images)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2)
        return self.fc2(relu(self.fc1(x.flatten(start_dim=1))))


def digits_task(recipe: Recipe) -> Task:
    """LeNet-5, and the digits in batches; the recipe gives the batch size."""
    data = load_digits()
    held_out = data.validation
    return Task(
        model=LeNet5(),
        train=Batches(data.train, recipe.batch_size, shuffle=True),
        validation=None if held_out is None else Batches(held_out, _EVALUATION_BATCH),
        test=Batches(data.test, _EVALUATION_BATCH),
    )


def digits_recipe(seed: int = 0) -> Recipe:
    """A run of less than a minute; its numbers were chosen on the validation digits."""
    return Recipe(
        name="digits",
        epochs=20,
        batch_size=50,
        lr=2e-3,
        gate_lr=1e-2,
        decay="cosine",
        budget={"macs": 0.1},
        seed=seed,
    )


def load_digits() -> Split:
    """Load the digits as pixels between 0 and 1: 1,197, 300 and 300 of them.

    Raises:
        MissingPackageError: If scikit-learn is not installed.
    """
    digits = _all_digits()
    generator = torch.Generator().manual_seed(_SPLIT_SEED)
    shuffled = torch.randperm(len(digits), generator=generator)
    train, validation, test = shuffled.tensor_split(
        (NUM_TRAIN, NUM_TRAIN + NUM_VALIDATION)
    )
    return Split(digits.take(train), digits.take(validation), digits.take(test))


def _all_digits() -> Examples:
    try:
        from sklearn import datasets  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise MissingPackageError(
            "the digits come with scikit-learn, which is not installed.\n"
            "Install it with `pip install 'diffprune[demo]'`."
        ) from error
    pixels, labels = datasets.load_digits(return_X_y=True)
    small = torch.as_tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / _WHITEST
    large = interpolate(small, size=(28, 28), mode="bilinear", align_corners=False)
    return Examples(large, torch.as_tensor(labels))
