"""Many runs that differ in what they may cost, side by side, and their front."""

from diffprune.lab.sweeps.workers import sweep as sweep
