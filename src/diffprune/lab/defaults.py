"""What a run is made with if nobody says otherwise; help texts and docs say the same.

Nothing is imported here, so that `--help` does not wait for torch.
"""

from typing import Final

EPOCHS: Final = 10
BATCH_SIZE: Final = 100
LR: Final = 1e-3
"""Of weights and, since nobody says otherwise, of gates."""
MACS: Final = 0.5
"""The part of the multiply-adds that a task may keep, without a budget or strength."""
