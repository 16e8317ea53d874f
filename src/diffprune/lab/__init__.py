"""One training loop, what goes into it, and the folder that comes out of it."""

from diffprune.lab.runs.records import Epoch as Epoch, Run as Run, read_run as read_run
from diffprune.lab.training.loop import train as train
from diffprune.lab.training.recipe import GateSettings as GateSettings, Recipe as Recipe
from diffprune.lab.training.task import Task as Task
