"""The paper, run again: its networks, data, recipes, tables, figures and records.

`python -m paper --help` lists what can be run. It uses diffprune and its workbench;
neither of them imports it, and it is not installed.
"""
