"""The command line: arguments in, messages out.

One file per command, put together in `app`. Importing torch takes seconds, so commands
import what they run, and `--help` does not.
"""

from diffprune.lab.cli.app import app as app
