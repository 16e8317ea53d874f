"""Let Optuna choose a budget and the learning rate of the gates: error against cost."""

from dataclasses import replace

from diffprune import lab
from diffprune.lab.digits import digits_recipe

search = lab.Search(ranges={"macs": (0.1, 0.6), "gate_lr": (3e-3, 1e-1)}, trials=3)
recipe = replace(digits_recipe(0), epochs=2)
front = lab.sweep("digits", search, out="sweeps/digits", recipe=recipe)

for run in front.runs:
    star = "*" if run.name in front.best else " "
    asked = f"macs={run.recipe.budget['macs']:.2f} gate_lr={run.recipe.gate_lr:.3f}"
    got = f"{run.outcome.macs} MACs, {run.outcome.test_error:.1f} % test error"
    print(star, run.name, asked, "->", got)
