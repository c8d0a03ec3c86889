"""Bootstrap intervals of a report's numbers: all share the same resampled problems, so each costs one product."""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from speciate.domain.arrays import FloatArray
from speciate.domain.tournament import Schedule
from speciate.tournaments.report.measures import Estimate
from speciate.tournaments.statistics.bootstrap import MIN_CLUSTERS, all_equal, percentiles, resample_counts

DRAWS: Final = 1000
LEVEL: Final = 0.95
TOO_FEW: Final = f"interval withheld: fewer than {MIN_CLUSTERS} problems"
ALIKE: Final = "interval withheld: all problems have the same value"
NOTHING: Final = "no run has completed"


def rng_for(schedule: Schedule, purpose: int) -> np.random.Generator:
    return np.random.default_rng([int(schedule.declared.digest[:16], 16), purpose])


@dataclass(frozen=True, slots=True)
class Resamples:
    """Problems drawn with replacement, once per number of problems that an estimate uses."""

    schedule: Schedule
    _drawn: dict[int, FloatArray] = field(default_factory=dict)

    def mean(self, values: FloatArray, runs: int, nothing: str = NOTHING, withheld: str = "") -> Estimate:
        """Return the mean over problems with its interval, or without one if problems are too few or all equal.

        ``nothing`` is the note of an estimate without problems; ``withheld`` a reason to show no interval in any case.
        """
        n = len(values)
        if n == 0:
            return Estimate(value=None, problems=0, runs=runs, note=nothing)
        value = float(values.mean())
        if why := TOO_FEW if n < MIN_CLUSTERS else withheld or (ALIKE if all_equal(values) else ""):
            return Estimate(value=value, problems=n, runs=runs, note=why)
        low, high = percentiles(self._counts(n) @ values / n, LEVEL)
        return Estimate(value=value, low=float(low), high=float(high), level=LEVEL, problems=n, runs=runs)

    def ratio(self, above: FloatArray, below: FloatArray, runs: int, infinite: str) -> Estimate:
        """Return Σ above ÷ Σ below with its interval, or without one if problems are too few or all equal.

        Both have shape (n_problems,); ``below`` is not negative. ``infinite`` is the note if it sums to 0.
        """
        n = len(above)
        if n == 0:
            return Estimate(value=None, problems=0, runs=runs, note=NOTHING)
        if not below.sum() > 0:
            return Estimate(value=None, problems=n, runs=runs, note=infinite)
        value = math.fsum(above) / math.fsum(below)
        # If every problem has the same ratio, resamples never change it.
        if why := TOO_FEW if n < MIN_CLUSTERS else ALIKE if all_equal(np.stack([above, value * below])) else "":
            return Estimate(value=value, problems=n, runs=runs, note=why)
        tops, bottoms = self._counts(n) @ above, self._counts(n) @ below
        drawn = np.divide(tops, bottoms, out=np.full(DRAWS, math.inf), where=bottoms > 0)
        low, high = (float(end) for end in percentiles(drawn, LEVEL))
        note = "" if math.isfinite(high) else "the interval has no upper end"
        bounded = high if math.isfinite(high) else None
        return Estimate(value=value, low=low, high=bounded, level=LEVEL, problems=n, runs=runs, note=note)

    def _counts(self, problems: int) -> FloatArray:
        if problems not in self._drawn:
            rng = np.random.default_rng([int(self.schedule.declared.digest[:16], 16), 10_000, problems])
            self._drawn[problems] = resample_counts(problems, DRAWS, rng)
        return self._drawn[problems]
