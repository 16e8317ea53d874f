import os
import signal
import threading

import pytest

from diffprune.lab.training.signals import Interruption


@pytest.fixture(autouse=True)
def as_in_a_terminal():
    """Jobs in the background ignore Ctrl-C, and tests may be one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_not_obeyed(number):
    before = signal.getsignal(number)
    with Interruption() as interruption:
        assert not interruption.is_requested
        os.kill(os.getpid(), number)
        assert interruption.is_requested
    assert signal.getsignal(number) is before


def test_the_second_is_obeyed():
    with Interruption():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_are_restored_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), Interruption():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_train_without_signals():
    found = []

    def listen():
        with Interruption() as interruption:
            found.append(interruption.is_requested)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [False]
