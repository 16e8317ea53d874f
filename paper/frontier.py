"""How small LeNet-5 can be on MNIST, and how wrong: the frontier of Table 1.

Gated networks learn from labels and from a teacher (`paper.teaching`), while two
budgets close their gates: one of weights, one of multiply-adds. What is left, a plain
small network, is trained once more, at a higher learning rate than gates bear: by the
teacher as before and, `untaught`, for the labels alone. The aims `normed`, `plain` and
`sparse` have a teacher with batch norms and dropout; `normed` trains what is left with
batch norms, too, which become a part of its layers in the end; `sparse` leaves more
units, most of whose weights leave one by one while they are trained again. Runs can be
interrupted, and continue with the same command. The numbers here were chosen on 5,000
training images that `validate` holds out; the learning rate of gated networks because a
higher one made the training loss explode, and the epochs of aims with a good teacher by
no trial.
"""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import diffprune as dp
from diffprune._core.files import write_text
from diffprune.errors import ArgumentError
from diffprune.lab import Recipe, Task, read_run
from diffprune.lab.cli.output import say
from diffprune.lab.image_batches import Split
from diffprune.lab.training.metrics import error_rate
from diffprune.lab.training.task import MakeTask
from paper.data.mnist import load_mnist
from paper.fewer_weights import FewerWeights
from paper.models.lenet5 import DENSE, LeNet5, folded_, normed_
from paper.records import RESULTS, ROOT, commit, copy_record, has_finished
from paper.teaching import (
    RUNS as TEACHERS,
    finish,
    task_of,
    teacher,
    teacher_folder,
    teacher_recipe,
    teacher_validated,
    with_scores,
)

PREFIX: Final = "frontier-"
"""How the names of its recipes begin."""
RUNS, RECORDS = ROOT / "runs" / "frontier", RESULTS / "frontier"


@dataclass(frozen=True)
class Aim:
    """What may be left of the network.

    Attributes:
        params: Weights and biases.
        macs: Multiply-adds of one image.
        floors: Units that are kept at least behind conv1, conv2 and the flattening.
            A unit there costs much and is pushed hard, and is dear to lose: without a
            floor, conv1 comes down to two filters while fc1 has dozens of units left.
        epochs: How long a gated network is trained.
        again_epochs: How long what is left of it is trained again.
        has_good_teacher: Whether the teacher has batch norms and dropout.
        has_norms: Whether what is left of a gated network has batch norms while it is
            trained again.
        weights: How many weights are left when it has been trained again; by default
            all of them.
    """

    params: int
    macs: int
    floors: tuple[int, int, int]
    epochs: int = 60
    again_epochs: int = 60
    has_good_teacher: bool = False
    has_norms: bool = False
    weights: int | None = None


_SMALL: Final = Aim(2_775, 150_000, (5, 9, 80))
_WELL_TAUGHT: Final = replace(_SMALL, epochs=20, again_epochs=80, has_good_teacher=True)
AIMS = {
    "small": _SMALL,
    "medium": replace(_SMALL, params=6_050),
    "normed": replace(_WELL_TAUGHT, has_norms=True),
    "plain": _WELL_TAUGHT,
    "sparse": replace(_WELL_TAUGHT, params=20_592, floors=(3, 18, 288), weights=2_700),
}


def recipe(aim: str, seed: int = 0) -> Recipe:
    """A budget of weights and multiply-adds, met early in the training."""
    asked = AIMS[aim]
    return Recipe(
        name=f"{PREFIX}{aim}",
        epochs=asked.epochs,
        batch_size=32,
        lr=1.5e-3,
        decay="cosine",
        budget={"parameters": asked.params, "macs": asked.macs / DENSE.macs},
        seed=seed,
    )


def again_recipe(closed: Recipe, *, taught: bool = True) -> Recipe:
    """What a closed network is trained with once more: as before, but for the gates.

    With batch norms it takes larger batches, for their statistics.
    """
    aim = AIMS[aim_of(closed)]
    return replace(
        closed,
        name=f"{closed.name}-{'again' if taught else 'untaught'}",
        epochs=aim.again_epochs,
        batch_size=64 if aim.has_norms else closed.batch_size,
        lr=6e-3,
        budget=None,
        strength=None,
    )


def student(recipe: Recipe) -> Task:
    """A gated network, taught by the dense one, on all training images."""
    return _taught(_gated(recipe), load_mnist(), TEACHERS, recipe)


def student_validated(recipe: Recipe) -> Task:
    """A gated network, taught by the dense one, on 55,000 of them."""
    data = load_mnist(validation=True)
    return _taught(_gated(recipe), data, _validated(), recipe)


def again(recipe: Recipe) -> Task:
    """What was left of a gated network, taught by the dense one."""
    task = _taught(_left(recipe, RUNS), load_mnist(), TEACHERS, recipe)
    return _thinned(task, recipe)


def again_untaught(recipe: Recipe) -> Task:
    """What was left of a gated network, with the labels alone."""
    return _thinned(task_of(_left(recipe, RUNS), load_mnist(), recipe), recipe)


def again_validated(recipe: Recipe) -> Task:
    """What was left of a gated network, taught by the dense one, on 55,000 images."""
    folder, data = _validated(), load_mnist(validation=True)
    return _thinned(_taught(_left(recipe, folder), data, folder, recipe), recipe)


def _thinned(task: Task, recipe: Recipe) -> Task:
    """The same, with weights that leave if the aim has any number of them."""
    weights = AIMS[aim_of(recipe)].weights
    if weights is None:
        return task
    steps = recipe.epochs * len(task.train)
    return replace(task, pruner=partial(FewerWeights, weights=weights, steps=steps))


def _taught(model: LeNet5, data: Split, teachers: Path, recipe: Recipe) -> Task:
    is_good = AIMS[aim_of(recipe)].has_good_teacher
    train = with_scores(data.train, teacher_folder(teachers, has_norms=is_good))
    return task_of(model, replace(data, train=train), recipe)


def _left(recipe: Recipe, runs: Path) -> LeNet5:
    closed = runs / f"{aim_of(recipe)}-seed{recipe.seed}"
    left = dp.load_pruned(LeNet5(), closed)
    return normed_(left) if AIMS[aim_of(recipe)].has_norms else left


def aim_of(recipe: Recipe) -> str:
    """The name of the budgets."""
    return recipe.name.split("-")[1]


def _gated(recipe: Recipe) -> LeNet5:
    aim = AIMS[aim_of(recipe)]
    floors = dict[int, int](zip((20, 50, 800), aim.floors, strict=True))
    return LeNet5(
        lambda size: dp.Gate(size, min_open=floors.get(size, 2), start="paper")
    )


def train(aim: str, seed: int, *, untaught: bool = False) -> None:
    """Close a network and train it again, and keep records of that; takes hours.

    If all of that is on record, nothing is trained.

    Args:
        aim: A name in `AIMS`.
        seed: Seed of all runs but the teacher's.
        untaught: Whether to train it again without the teacher, too.
    """
    closing, folder = recipe(aim, seed), f"{aim}-seed{seed}"
    stages: dict[str, tuple[MakeTask, Recipe]] = {
        folder: (student, closing),
        f"{folder}-again": (again, again_recipe(closing)),
    }
    if untaught:
        how = again_recipe(closing, taught=False)
        stages[f"{folder}-untaught"] = (again_untaught, how)
    kept = {how.name: has_finished(how, RECORDS / n) for n, (_, how) in stages.items()}
    if all(kept.values()):
        return
    present, is_good = commit(), AIMS[aim].has_good_teacher
    taught_by = teacher_recipe(has_norms=is_good)
    finish(teacher, taught_by, teacher_folder(TEACHERS, has_norms=is_good))
    for name, (make_task, how) in stages.items():
        if not kept[how.name]:
            _finish_and_keep(make_task, how, name, present)
        elif name == folder:  # others continue from its network, not from its record
            finish(make_task, how, RUNS / name)
            _check_same_widths(RUNS / name, RECORDS / name)


def _finish_and_keep(make_task: MakeTask, how: Recipe, name: str, present: str) -> None:
    finish(make_task, how, RUNS / name)
    copy_record(RUNS / name, RECORDS / name, present)
    if AIMS[aim_of(how)].has_norms and how.is_dense:
        _keep_folded(RUNS / name, RECORDS / name)
    say(f"Record written to {RECORDS / name}.")


def _check_same_widths(folder: Path, record: Path) -> None:
    """Refuse to go on from another network than the one on record."""
    run, kept = (read_run(one).outcome for one in (folder, record))
    if run is None or kept is None or dict(run.effective) != dict(kept.effective):
        raise ArgumentError(
            f"`{folder}` has left another network than its record `{record}` says, and "
            "nothing that continues from it can stand beside that.\nMove all records "
            "of this seed away to make new ones."
        )


def _keep_folded(folder: Path, record: Path) -> None:
    """Fold the norms of a finished run away, and keep how many errors are left."""
    how = read_run(folder).recipe
    plain = folded_(dp.load_pruned(_left(how, RUNS), folder))
    task = task_of(plain, load_mnist(), how)
    found = {
        "test_error": error_rate(plain, task, task.test).percent,
        "parameters": sum(p.numel() for p in plain.parameters()),
        "layers": str(plain),
    }
    write_text(record / "folded.json", json.dumps(found, indent=2) + "\n")
    say(f"{how.name} {how.seed}, norms folded away: {found['test_error']:.2f} %")


def validate(aim: str) -> None:
    """Train all stages on 55,000 images; 5,000 are held out to choose with."""
    folder, is_good = _validated(), AIMS[aim].has_good_teacher
    taught_by, closing = teacher_recipe(has_norms=is_good), recipe(aim)
    name = f"{aim}-seed{closing.seed}"
    finish(teacher_validated, taught_by, teacher_folder(folder, has_norms=is_good))
    finish(student_validated, closing, folder / name)
    finish(again_validated, again_recipe(closing), folder / f"{name}-again")


def _validated() -> Path:
    return RUNS / "validated"
