"""The paper again: its networks, data, recipes, tables, figures. `python -m paper`."""
