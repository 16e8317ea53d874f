"""Budgets: what a model may cost, and how its gates are steered there."""

from diffprune.budget.budget import Budget as Budget
from diffprune.budget.controller import Controller as Controller
