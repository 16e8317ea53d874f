"""One training loop, what goes into it, and the folder that comes out of it."""

from diffprune.experiment.recipe import GateSettings as GateSettings, Recipe as Recipe
from diffprune.experiment.records import (
    Epoch as Epoch,
    Run as Run,
    read_run as read_run,
)
from diffprune.experiment.task import Task as Task
from diffprune.experiment.train import train as train
