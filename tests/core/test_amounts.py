"""Amounts are understood, or refused, without torch."""

import subprocess
import sys

import pytest

from diffprune._core.amounts import absolute
from diffprune.errors import ArgumentError


@pytest.mark.parametrize("amount", [True, None, [0.5], float("nan"), -1, 0, 1j, "abc"])
def test_what_is_no_amount_is_refused_by_name(amount):
    with pytest.raises(ArgumentError, match="macs"):
        absolute(amount, 1.0, "macs")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["train", "digits", "--budget", "macs=abc"], "'abc' is no amount of macs"),
        (["train", "digits", "--budget", "macs=-1"], "cannot be met"),
        (["train", "digits", "--budget", "speed=3"], "cannot limit `speed`"),
        (["shrink", "digits", "--budget", "latency=5 miles"], "no amount of latency"),
        (["sweep", "digits", "--vary", "macs=abc"], "'abc' is no amount of macs"),
        (["sweep", "digits", "--vary", "macs"], "does not say what to vary"),
    ],
)
def test_a_mistyped_amount_is_found_before_torch_is_imported(command, said):
    code = (
        "import sys\nfrom diffprune.__main__ import main\n"
        f"sys.argv = ['diffprune', *{command!r}]\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode in {1, 2}
    assert said in " ".join(done.stderr.split())
    assert done.stdout.strip().endswith("False")
