"""`python -m diffprune` is `diffprune`."""

from diffprune.lab.cli import app

if __name__ == "__main__":
    app(prog_name="diffprune")
