"""What `import diffprune` brings along: not torch, and nothing optional, ever."""

import subprocess
import sys

OPTIONAL = (
    "PIL", "altair", "huggingface_hub", "onnx", "onnxruntime", "onnxscript", "optuna",
    "pyarrow", "sklearn", "tensorboard", "timm", "torchvision", "transformers",
    "vl_convert",
)  # fmt: skip
ALL_NAMES = "import diffprune; [getattr(diffprune, name) for name in dir(diffprune)]"


def loaded(code):
    """Names of the packages that are loaded after running code in a new process."""
    script = (
        f"{code}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own words
    return set(done.stdout.split())


def test_the_bare_import_does_not_even_need_torch():
    assert not loaded("import diffprune") & {"torch", "rich", "typer", *OPTIONAL}


def test_nothing_optional_is_imported():
    """Not by the whole library, nor by what the commands start with."""
    code = f"{ALL_NAMES}; import diffprune.lab.cli.run_jobs, diffprune.lab.demo"
    assert loaded(code) & set(OPTIONAL) == set()
