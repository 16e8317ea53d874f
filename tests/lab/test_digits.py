import sys

import pytest
import torch

from diffprune.errors import MissingPackageError
from diffprune.lab.digits import load_digits


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def test_the_three_parts_are_all_the_digits_without_overlap(digits):
    parts = (digits.train, digits.validation, digits.test)
    assert [len(part) for part in parts] == [1197, 300, 300]
    images = torch.cat([part.images for part in parts]).flatten(1)
    assert len(images.unique(dim=0)) == 1797


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_images_fit_lenet5_and_every_class_is_there(digits, part):
    examples = getattr(digits, part)
    assert examples.images.shape[1:] == (1, 28, 28)
    assert (examples.images.min(), examples.images.max()) == (0, 1)
    assert examples.labels.unique().tolist() == list(range(10))


def test_the_split_ignores_the_global_seed(digits):
    torch.manual_seed(123)
    assert load_digits().test.images.equal(digits.test.images)


def test_an_image_keeps_its_label(digits):
    from sklearn import datasets

    pixels, labels = datasets.load_digits(return_X_y=True)
    small = torch.nn.functional.interpolate(digits.test.images, size=(8, 8))
    originals = torch.as_tensor(pixels, dtype=torch.float32) / 16
    nearest = torch.cdist(small.flatten(1), originals).argmin(dim=1)
    agree = torch.as_tensor(labels)[nearest] == digits.test.labels
    assert agree.float().mean() > 0.9


def test_without_scikit_learn_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'diffprune\[demo\]'"):
        load_digits()
