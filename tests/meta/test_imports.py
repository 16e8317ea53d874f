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


def modules(code, folder=None):
    """Names of all modules that are loaded after running code in a new process."""
    script = f"{code}\nimport sys; print('modules:', *sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(  # noqa: S603 - our own words
        command, capture_output=True, text=True, check=True, cwd=folder
    )
    return set(done.stdout.rpartition("modules:")[2].split())


def loaded(code):
    """Names of the packages among them."""
    return {name.partition(".")[0] for name in modules(code)}


def parts(code, folder=None):
    """Names of the parts of diffprune among them, and of the paper."""
    names = modules(code, folder)
    paper = {name for name in names if name.partition(".")[0] == "paper"}
    return paper | {n.split(".")[1] for n in names if n.startswith("diffprune.")}


def test_the_bare_import_does_not_even_need_torch():
    assert not loaded("import diffprune") & {"torch", "rich", "typer", *OPTIONAL}


def test_nothing_optional_is_imported():
    """Not by the whole library, nor by what the commands start with."""
    code = f"{ALL_NAMES}; import diffprune.lab.cli.run_jobs, diffprune.lab.demo"
    assert loaded(code) & set(OPTIONAL) == set()


def test_a_saved_model_is_loaded_without_the_parts_that_train():
    found = parts("import diffprune; diffprune.load_pruned")
    assert "_io" in found
    assert (
        found & {"_pruner", "_budget", "_costs", "_shrink", "_export", "lab"} == set()
    )


def test_training_a_model_of_your_own_needs_nothing_of_the_paper(tmp_path):
    found = parts(TASK, tmp_path)
    assert {"_pruner", "lab"} <= found
    assert "paper" not in found
