import threading

import pytest

from diffprune._choice.lockstep import Pausable


def test_two_runs_move_in_turns():
    log = []

    def run(name):
        def body(pause):
            for number in range(3):
                log.append((name, number))
                pause(number)

        return body

    pairs = list(zip(Pausable(run("a")), Pausable(run("b")), strict=True))
    assert pairs == [(0, 0), (1, 1), (2, 2)]
    assert log == [(name, number) for number in range(3) for name in "ab"]


def test_an_error_is_raised_where_the_run_is_resumed():
    def run(pause):
        pause(1)
        raise ValueError("inside")

    walk = Pausable(run)
    assert next(walk) == 1
    with pytest.raises(ValueError, match="inside"):
        next(walk)
    assert list(walk) == []


def test_a_run_that_is_given_up_ends():
    ended = []

    def run(pause):
        try:
            pause(1)
        except Exception:  # noqa: BLE001 - as careless code in a model may
            pause(2)
        finally:
            ended.append("yes")

    before = threading.active_count()
    walk = Pausable(run)
    next(walk)
    walk.close()
    assert ended == ["yes"]
    assert threading.active_count() == before


def test_a_run_that_never_began_ends():
    before = threading.active_count()
    Pausable(lambda pause: pause(1)).close()
    assert threading.active_count() == before
