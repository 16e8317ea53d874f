"""Budgets: what a model may cost, and how its gates are steered there."""

from diffprune._budget.budget import Budget as Budget
from diffprune._budget.controller import Controller as Controller, Tick as Tick
