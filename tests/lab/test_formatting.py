import pytest

from diffprune.lab.formatting import short


@pytest.mark.parametrize(
    ("number", "text"),
    [(999, "999"), (1_000, "1.00k"), (99_949, "99.9k"), (5_243_328_768, "5.24G")],
)
def test_numbers_are_short(number, text):
    assert short(number) == text
