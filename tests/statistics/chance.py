"""How often something may come out in simulated batches: what chance allows once in ten thousand."""

from __future__ import annotations

import os

from scipy.stats import binom

BATCHES = 4_000 if os.environ.get("WTB_SOAK") else 250


def most(share: float, batches: int = BATCHES) -> float:
    return float(binom.ppf(0.9999, batches, share)) / batches


def least(share: float, batches: int = BATCHES) -> float:
    return float(binom.ppf(0.0001, batches, share)) / batches
