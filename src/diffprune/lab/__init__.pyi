# The public names of the workbench; `__init__.py` reads this file.
from .recorder import Recorder as Recorder, record as record
from .report import Reference as Reference, write_report as write_report
from .runs.records import (
    Epoch as Epoch,
    Outcome as Outcome,
    Run as Run,
    read_run as read_run,
)
from .sweeps.pareto import Front as Front
from .sweeps.search import Search as Search
from .sweeps.workers import sweep as sweep
from .tensorboard_events import tensorboard as tensorboard
from .training.loop import train as train
from .training.recipe import Recipe as Recipe
from .training.task import Task as Task
