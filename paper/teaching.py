"""Teachers: what they say about images, and how others follow them.

A dense network is trained, and what it says about a training image stands beside the
label. Networks that learn from both make fewer errors than from labels alone. How hot
the scores are and how much they weigh was chosen on 5,000 training images of MNIST that
were held out; the epochs and the dropout rates of the teacher with norms by no trial.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax

import diffprune as dp
from diffprune import lab
from diffprune.gates import named_gates
from diffprune.lab import Epoch, Recipe, Task, read_run
from diffprune.lab.cli.output import say
from diffprune.lab.formatting import architecture
from diffprune.lab.image_batches import Batches, Examples, Split
from diffprune.lab.training.task import Loader, MakeTask, is_wrong
from paper.data.mnist import load_mnist
from paper.models.lenet5 import LeNet5, channels_last, normed_
from paper.records import ROOT, has_finished

RUNS = ROOT / "runs"
"""Where teachers are: where `python -m paper table` trains them."""
TEMPERATURE, TAUGHT = 4.0, 0.9
_NORMED: Final = "frontier-teacher-normed"
_DROPPED: Final = {20: 0.1, 50: 0.1, 800: 0.3, 500: 0.5}
"""Of how many units at a place the teacher with norms drops which part."""


def teacher_recipe(seed: int = 0, *, has_norms: bool = False) -> Recipe:
    """The dense network, once."""
    return Recipe(
        name=_NORMED if has_norms else "frontier-teacher",
        epochs=15,
        lr=1e-3,
        decay="cosine",
        strength=None,
        seed=seed,
    )


def teacher_folder(runs: Path, *, has_norms: bool) -> Path:
    """Where a teacher is, among runs."""
    return runs / teacher_recipe(has_norms=has_norms).folder_name


def teacher(recipe: Recipe) -> Task:
    """The dense network on all training images."""
    return task_of(teacher_network(recipe), load_mnist(), recipe)


def teacher_validated(recipe: Recipe) -> Task:
    """The dense network on 55,000 of them."""
    return task_of(teacher_network(recipe), load_mnist(validation=True), recipe)


def teacher_network(recipe: Recipe) -> LeNet5:
    """The whole network; with norms it drops units while it learns."""
    if recipe.name == _NORMED:
        return normed_(LeNet5(lambda size: nn.Dropout(_DROPPED[size])))
    return LeNet5()


def task_of(model: LeNet5, data: Split, recipe: Recipe) -> Task:
    """A network with images whose targets are labels, or labels with scores."""
    held_out = data.validation
    return Task(
        model=channels_last(model),
        train=Batches(data.train, recipe.batch_size, shuffle=True),
        validation=None if held_out is None else Batches(held_out, 1_000),
        test=Batches(data.test, 1_000),
        loss=loss,
        error=error,
    )


def with_scores(examples: Examples, folder: Path) -> Examples:
    """The same images; behind each label is what the teacher in `folder` says."""
    said = _scores(folder, examples.images)
    return replace(examples, labels=_behind(examples.labels, said))


@torch.no_grad()
def _scores(folder: Path, images: Tensor) -> Tensor:
    with torch.random.fork_rng():  # what learns from it is as random without it
        network = teacher_network(read_run(folder).recipe)
    model = dp.load_pruned(network, folder).eval()
    return torch.cat([model(batch) for batch in images.split(1_000)])


def taught(task: Task, make_teacher: MakeTask, how: Recipe) -> Task:
    """The same task with a teacher from the first step on, who sees the same images.

    It is trained first, if it has not been.

    Args:
        task: Its images may be changed at random.
        make_teacher: From a recipe to the network that teaches, and what it learns.
        how: Its recipe.
    """
    folder = RUNS / how.folder_name
    finish(make_teacher, how, folder)
    with torch.random.fork_rng():  # what learns from it is as random without it
        network = make_teacher(how).model
    teacher = dp.load_pruned(network, folder)
    return replace(task, train=Heard(task.train, teacher), loss=loss, error=error)


@final
class Heard:
    """Batches of images; behind each label is what a teacher says about the image.

    Args:
        batches: Images, which may be other ones every time, and labels.
        teacher: It is asked in eval mode.
    """

    def __init__(self, batches: Loader, teacher: nn.Module) -> None:
        self._batches, self._teacher = batches, teacher.eval()

    def __len__(self) -> int:
        """Count the batches."""
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in self._batches:
            with torch.no_grad():
                said = self._teacher(images)
            yield images, _behind(labels, said)


def taught_once_held(task: Task, data: Split, recipe: Recipe) -> Task:
    """The same task with the teacher that has norms, as soon as no gate learns.

    Until then labels are all there is, so the same units close as without a teacher.
    The teacher is trained first, if it has not been.

    Args:
        task: With gates that are held at some time.
        data: Its images.
        recipe: Of the run.
    """
    folder = teacher_folder(RUNS, has_norms=True)
    finish(teacher, teacher_recipe(has_norms=True), folder)
    both = with_scores(data.train, folder)
    return replace(
        task,
        train=Batches(both, recipe.batch_size, shuffle=True),
        loss=partial(_loss_once_held, task.model),
        error=error,
    )


def _loss_once_held(model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
    gates = named_gates(model).values()
    is_held = not any(p.requires_grad for gate in gates for p in gate.parameters())
    return loss(outputs, targets if is_held else _labels(targets))


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of labels, or of labels followed by the scores of a teacher."""
    own = cross_entropy(outputs, _labels(targets))
    if targets.ndim == 1:
        return own
    said, heard = targets[:, 1:] / TEMPERATURE, outputs / TEMPERATURE
    apart = kl_div(
        log_softmax(heard, 1), log_softmax(said, 1), log_target=True,
        reduction="batchmean",
    )  # fmt: skip
    return (1 - TAUGHT) * own + TAUGHT * TEMPERATURE**2 * apart


def error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the label is another, whatever the teacher says."""
    return is_wrong(outputs, _labels(targets))


def _behind(labels: Tensor, said: Tensor) -> Tensor:
    return torch.cat([labels.unsqueeze(1).to(said), said], dim=1)


def _labels(targets: Tensor) -> Tensor:
    return targets if targets.ndim == 1 else targets[:, 0].long()


def finish(make_task: MakeTask, how: Recipe, folder: Path) -> None:
    """Train, or continue; nothing if that was done before.

    Raises:
        ArgumentError: If another run is in the folder.
    """
    if not has_finished(how, folder):
        lab.train(make_task, how, out=folder, on_epoch=lambda epoch: _tell(how, epoch))


def _tell(how: Recipe, epoch: Epoch) -> None:
    errors = f"{epoch.validation_error or epoch.test_error:.2f} %"
    widths = architecture(epoch.effective)
    say(f"{how.name} {how.seed} {epoch.number} {widths} {errors}")
