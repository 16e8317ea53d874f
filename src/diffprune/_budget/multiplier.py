"""A controller that finds how hard to push: the nuPI rule. Knows only an error.

Proportional-integral control of a multiplier: it grows while a constraint is violated,
and reacts to how fast that changes. With integral gain alone it is dual ascent.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gains:
    """How a multiplier answers to errors.

    Attributes:
        integral: To errors themselves.
        proportional: To changes of the smoothed error.
        smoothing: Share of the past in the smoothed error.
    """

    integral: float
    proportional: float = 0.0
    smoothing: float = 0.0


@dataclass(frozen=True)
class Multiplier:
    """A controlled number, and the smoothed error so far."""

    value: float
    smoothed: float = 0.0

    def after(
        self, error: float, gains: Gains, low: float, high: float
    ) -> "Multiplier":
        """The multiplier after one more error, kept within bounds.

        Examples:
            >>> Multiplier(0.0).after(2.0, Gains(0.5), 0.0, 9.0).value
            1.0
        """
        smoothed = gains.smoothing * self.smoothed + (1 - gains.smoothing) * error
        trend = smoothed - self.smoothed
        change = gains.integral * error + gains.proportional * trend
        return Multiplier(min(max(self.value + change, low), high), smoothed)
