"""`diffprune` and `python -m diffprune`: the command line, if it is installed."""

import sys


def main() -> None:
    """Run a command; say what to install where the packages for it are missing."""
    try:
        from diffprune.lab.cli import app  # noqa: PLC0415 - not in a bare install
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        sys.exit(
            f"Error: the `diffprune` command needs {error.name}, which is not "
            "installed.\nInstall it with `pip install 'diffprune[lab]'`."
        )
    app(prog_name="diffprune")


if __name__ == "__main__":
    main()
