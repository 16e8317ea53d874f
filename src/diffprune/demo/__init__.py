"""The demonstration behind `diffprune demo`, in the order in which things happen.

`training` trains, `summary` holds what came out, `files` writes it, `run` calls the
three for the dense and the gated network, and `view` shows it in a terminal.
"""
