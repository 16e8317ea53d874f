"""The controller beside cooper's, on a problem whose solution is known."""

import cooper
import pytest
import torch

from diffprune._budget.controller import Gains, Multiplier

GAINS = [Gains(0.1), Gains(0.1, 0.5), Gains(0.05, 1.0, 0.9), Gains(0.2, 0.3, 0.5)]
STEPS = 60


class Nearest(cooper.ConstrainedMinimizationProblem):
    """The point nearest to (3, 1) whose coordinates add up to at most 2."""

    def __init__(self):
        super().__init__()
        multiplier = cooper.multipliers.DenseMultiplier(num_constraints=1)
        self.sum = cooper.Constraint(
            constraint_type=cooper.ConstraintType.INEQUALITY,
            formulation_type=cooper.formulations.Lagrangian,
            multiplier=multiplier,
        )

    def compute_cmp_state(self, x):
        violation = cooper.ConstraintState(violation=x.sum().reshape(1) - 2)
        loss = (x - torch.tensor([3.0, 1.0])).square().sum()
        return cooper.CMPState(loss=loss, observed_constraints={self.sum: violation})


def of_cooper(gains):
    x = torch.nn.Parameter(torch.zeros(2))
    problem = Nearest()
    rule = cooper.optim.nuPI(
        problem.dual_parameters(),
        lr=1.0,
        Kp=gains.proportional,
        Ki=gains.integral,
        ema_nu=gains.smoothing,
        init_type=cooper.optim.nuPIInitType.ZEROS,
        maximize=True,
    )
    both = cooper.optim.SimultaneousOptimizer(
        primal_optimizers=torch.optim.SGD([x], lr=0.1),
        dual_optimizers=rule,
        cmp=problem,
    )
    path = []
    for _ in range(STEPS):
        both.roll(compute_cmp_state_kwargs={"x": x})
        path.append(problem.sum.multiplier.weight.item())
    return path


def of_ours(gains):
    x = torch.nn.Parameter(torch.zeros(2))
    optimizer, multiplier, path = torch.optim.SGD([x], lr=0.1), Multiplier(0.0), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        violation = x.sum() - 2
        loss = (x - torch.tensor([3.0, 1.0])).square().sum()
        (loss + multiplier.value * violation).backward()
        optimizer.step()
        multiplier = multiplier.after(violation.item(), gains, 0.0, float("inf"))
        path.append(multiplier.value)
    return path


@pytest.mark.parametrize("gains", GAINS)
def test_multipliers_take_the_path_that_coopers_take(gains):
    torch.testing.assert_close(of_ours(gains), of_cooper(gains), rtol=1e-4, atol=1e-5)


def test_the_path_leads_to_the_solution():
    assert of_ours(Gains(0.2, 0.3, 0.5))[-1] == pytest.approx(2.0, abs=1e-3)


def test_bounds_hold():
    multiplier = Multiplier(0.0).after(50.0, Gains(1.0), -1.0, 1.0)
    assert multiplier.value == 1.0
    assert multiplier.after(-50.0, Gains(1.0), -1.0, 1.0).value == -1.0
