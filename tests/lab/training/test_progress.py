import time

import pytest
import torch

from diffprune.lab.image_batches import Batches, Examples
from diffprune.lab.training.progress import Progress, Stopwatch

EXAMPLES = Examples(torch.arange(20.0).view(-1, 1), torch.arange(20))


@pytest.fixture
def loader():
    """Shuffled, augmented with noise: both draw from the global generator."""
    return Batches(
        EXAMPLES, 3, shuffle=True, transform=lambda x: x + torch.rand_like(x)
    )


def seen(progress, loader, count=None):
    """What a consumer that draws random numbers of its own sees."""
    found = []
    for inputs, labels in progress.remaining(loader):
        found.append((inputs, labels, torch.rand(())))
        progress.add(len(inputs), torch.tensor(1.0), labels.float(), Stopwatch())
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_an_epoch_continues_as_if_it_had_not_stopped(loader, stop):
    whole = seen(Progress(), loader)
    torch.manual_seed(0)
    first = Progress()
    begun = seen(first, loader, stop)
    state = torch.get_rng_state()
    torch.manual_seed(77)
    torch.set_rng_state(state)
    resumed = Progress(**first.to_dict())
    both = begun + seen(resumed, loader)
    assert len(both) == len(whole) == 7
    for ours, expected in zip(both, whole, strict=True):
        assert all(a.equal(b) for a, b in zip(ours, expected, strict=True))


def test_sums_belong_to_an_epoch_and_time_to_the_run(loader, monkeypatch):
    monkeypatch.setattr(Stopwatch, "read", lambda _: (0.5, 0.25))
    progress = Progress()
    seen(progress, loader)
    assert (progress.batches, progress.examples, progress.loss) == (7, 20, 7.0)
    assert (progress.error, progress.processor_seconds) == (190, 1.75)
    after = progress.next_epoch()
    assert (after.epoch, after.batches, after.loss, after.seconds) == (1, 0, 0, 0)
    assert after.total_seconds == 3.5


def test_a_mean_error_is_one_of_pixels_and_examples_are_counted_once():
    progress = Progress()
    progress.add(2, torch.tensor(1.0), torch.ones(2, 3, 3), Stopwatch())
    assert (progress.examples, progress.errors, progress.error) == (2, 18, 18)


def test_a_stopwatch_tells_waiting_from_working():
    watch = Stopwatch()
    time.sleep(0.05)
    seconds, processor_seconds = watch.read()
    assert seconds >= 0.05
    assert 0 <= processor_seconds < seconds / 2
