"""Everything diffprune raises on purpose.

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


class TraceError(DiffpruneError, RuntimeError):
    """A model whose forward pass cannot be written down as one graph."""


class RuleError(DiffpruneError, RuntimeError):
    """A rule for an op that raised something; the message names the op and the line."""


class RemovalError(DiffpruneError, RuntimeError):
    """A removal that would change what the model computes; nothing was changed."""


class ExportError(DiffpruneError, RuntimeError):
    """A file that would not compute what its model does; it was not written."""


class StorageError(DiffpruneError, OSError):
    """A file that could not be read or written; what was there before is as it was."""


class MissingFileError(StorageError, FileNotFoundError):
    """A file that is not there."""


class FinishedError(DiffpruneError, RuntimeError):
    """A pruner that has already been finalized."""


class ProcessError(DiffpruneError, RuntimeError):
    """Another process, of a training or of a sweep, failed, differs, or is gone."""


class MissingPackageError(DiffpruneError, ImportError):
    """An optional package is not installed; the message says how to install it."""
