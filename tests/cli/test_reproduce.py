import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["alexnet"], "there is no `alexnet`; there are `lenet5`, `wrn`"),
        (["lenet5", "--results", "empty"], "`empty` holds no records"),
    ],
)
def test_what_cannot_be_found_is_explained(diffprune, arguments, message):
    done = diffprune("reproduce", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr
