"""Handwritten digits that come with scikit-learn; nothing is downloaded.

1,797 images of 8x8 pixels, enlarged to the 28x28 that MNIST's networks expect, and
always split in the same way: a seed changes the training, never the exam.
"""

import torch
from torch.nn.functional import interpolate

from diffprune.errors import MissingPackageError
from diffprune.lab.image_batches import Examples, Split

NUM_TRAIN, NUM_VALIDATION = 1197, 300
_SPLIT_SEED = 0
_WHITEST = 16.0


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
