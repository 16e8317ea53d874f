"""The demonstration behind `diffprune demo`, in the order in which things happen.

`run` trains the dense and the gated network, `deliver` saves and exports what is left,
`summary` holds what came out, `files` writes it, and `view` shows it in a terminal.
"""
