import pytest
import torch

from diffprune.lab.image_batches import Batches, Examples, hold_out


@pytest.fixture
def examples():
    return Examples(torch.arange(10.0).view(10, 1, 1, 1), torch.arange(10))


@pytest.mark.parametrize(("size", "count"), [(3, 4), (5, 2), (10, 1), (99, 1)])
def test_batches_hold_every_example_once(examples, size, count):
    batches = Batches(examples, size, shuffle=True)
    found = list(batches)
    assert len(batches) == len(found) == count
    labels = torch.cat([labels for _, labels in found])
    assert labels.sort().values.equal(examples.labels)
    assert all(images.flatten().equal(y.float()) for images, y in found)


def test_every_pass_has_another_order_and_a_seed_repeats_it(examples):
    batches = Batches(examples, 10, shuffle=True)

    def order():
        return next(iter(batches))[1].tolist()

    first, second = order(), order()
    torch.manual_seed(0)
    assert first != second
    assert order() == first


def test_images_are_transformed_and_labels_are_not(examples):
    images, labels = next(iter(Batches(examples, 4, transform=lambda x: -x)))
    assert images.flatten().equal(-labels.float())


def test_held_out_examples_are_always_the_same(examples):
    train, held_out = hold_out(examples, 3)
    torch.manual_seed(5)
    again = hold_out(examples, 3)[1]
    assert held_out.labels.equal(again.labels)
    both = torch.cat([train.labels, held_out.labels])
    assert both.sort().values.equal(examples.labels)
