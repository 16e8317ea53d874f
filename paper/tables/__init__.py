"""The tables of the paper next to ours."""
