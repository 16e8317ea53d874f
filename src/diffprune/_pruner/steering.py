"""From the budgets users ask for to what steers the gates of a model there."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from diffprune._budget import Budget, Controller
from diffprune._budget.limits import Measured
from diffprune._costs.latency import measure_in_turns
from diffprune._pruner.gated_model import Body, Units
from diffprune._pruner.strengths import Strength
from diffprune.errors import ArgumentError

Budgets: TypeAlias = Budget | Sequence[Budget]


def make_controller(
    budget: Budgets, body: Body[Any], strength: Strength | None, round_to: int
) -> Controller:
    """Steer a gated model, of which nothing was removed yet, to its budgets.

    Raises:
        ArgumentError: If a budget cannot be met, or other options contradict it.
    """
    budgets = [budget] if isinstance(budget, Budget) else list(budget)
    if not budgets:
        raise ArgumentError("budget=[] asks for nothing: leave it out.")
    if strength is not None:
        raise ArgumentError(
            "a budget finds its own strengths: leave `strength=` out.\n"
            "To keep layers whole, type `freeze=[...]`."
        )

    network = body.network()
    if all(one.latency is None for one in budgets):
        return Controller(budgets, network, body.gates, round_to, body.unread)
    whole, inputs = body.plain_copy(), body.example_inputs

    def seconds(closed: Mapping[str, Units]) -> dict[str, Measured]:
        models = [body.without(closed), whole]
        return {"latency": Measured(*measure_in_turns(models, inputs))}

    return Controller(budgets, network, body.gates, round_to, body.unread, seconds)


def check_same_budget(state: object, controller: Controller | None) -> None:
    """Refuse the state of a run with a budget for one without, and the reverse.

    Raises:
        ArgumentError: If only one of them has a budget, or they have different ones.
    """
    if isinstance(state, dict) and controller is not None:
        controller.check_state(state)
    if (state is None) != (controller is None):
        has, lacks = ("pruner", "state") if state is None else ("state", "pruner")
        raise ArgumentError(
            f"this {has} has a budget and the {lacks} has none.\n"
            "Load a state into a pruner made with the same arguments."
        )
