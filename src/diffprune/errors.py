"""Everything diffprune raises on purpose; knows nothing of what raised it.

Each error is also the builtin a caller would expect, so `except ValueError` works.
"""


class DiffpruneError(Exception):
    """Root of all errors raised by diffprune."""


class ArgumentError(DiffpruneError, ValueError):
    """An argument that cannot be right: a wrong size, range or combination."""


class UnknownNameError(DiffpruneError, KeyError):
    """A name or pattern that matches nothing; the message lists what exists."""

    def __str__(self) -> str:
        """Show the message itself, where `KeyError` would show its repr."""
        return str(self.args[0]) if self.args else ""
