"""Many runs that differ in what they may cost, side by side, and their front."""

from diffprune.sweep.run import sweep as sweep
