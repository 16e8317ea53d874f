"""What an import brings along: nothing optional, and no part that is not used."""

import subprocess
import sys

OPTIONAL = (
    "PIL", "altair", "huggingface_hub", "onnx", "onnxruntime", "onnxscript", "optuna",
    "pyarrow", "sklearn", "tensorboard", "timm", "torchvision", "transformers",
    "vl_convert",
)  # fmt: skip
ALL_NAMES = "import diffprune; [getattr(diffprune, name) for name in dir(diffprune)]"


TASK = """
import torch
from diffprune.lab import Recipe, Task, train

def digits(recipe):
    batches = [(torch.rand(4, 3), torch.randint(2, (4,)))]
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2))
    return Task(model=model, train=batches, test=batches)

train(digits, Recipe(name="mine", epochs=1, strength=1e-4), out="run")
"""


FORKS = """
import os, sys
{first}
for code in {codes!r}:
    sys.stdout.flush()
    if os.fork() == 0:
        exec(code, {{"__name__": "__main__"}})
        print("modules:", *sys.modules)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def modules(code, folder=None):
    """Names of all modules that are loaded after running code in a new process."""
    return modules_after([code], folder)[0]


def modules_after(codes, folder=None, *, first=""):
    """The same for several pieces of code, each in a fork of a process that did first.

    Importing torch takes longer than all the rest, so it is done once for all.
    """
    script = FORKS.format(first=first, codes=list(codes))
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    found = done.stdout.split("modules:")[1:]
    assert len(found) == len(codes), done.stderr
    return [set(names.split("\n")[0].split()) for names in found]


def packages(names):
    """Names of the packages among modules."""
    return {name.partition(".")[0] for name in names}


def parts(names):
    """Names of the parts of diffprune among modules, and of the paper."""
    paper = {name for name in names if name.partition(".")[0] == "paper"}
    return paper | {n.split(".")[1] for n in names if n.startswith("diffprune.")}


def test_the_bare_import_does_not_even_need_torch():
    found = packages(modules("import diffprune"))
    assert not found & {"torch", "rich", "typer", *OPTIONAL}


def test_an_import_brings_along_what_is_used(tmp_path):
    everything, loading, training = modules_after(
        [
            f"{ALL_NAMES}; import diffprune.lab.cli.run_jobs, diffprune.lab.demo",
            "import diffprune; diffprune.load_pruned",
            TASK,
        ],
        tmp_path,
        first="import torch",
    )
    # Not by the whole library, nor by what the commands start with.
    assert packages(everything) & set(OPTIONAL) == set()
    # A saved model is loaded without the parts that train.
    unused = {"_pruner", "_budget", "_costs", "_shrink", "_export", "lab"}
    assert "_io" in parts(loading)
    assert parts(loading) & unused == set()
    # Training a model of your own needs nothing of the paper.
    assert {"_pruner", "lab"} <= parts(training)
    assert "paper" not in parts(training)
