"""Score a step function by its minimum overlap."""

import numpy as np
from steps import scaled, steps_of

ROUNDING = 1e-6


def evaluate(candidate, context):
    """Return the rewards of the heights that ``solve()`` returns."""
    heights = steps_of(candidate.call("solve").unwrap(), context, negative=False)
    n = len(heights)
    if n < 2 or heights.sum() <= 0:
        context.invalid("expected at least 2 steps and a positive integral")
    heights = scaled(heights)
    heights = heights * (n / 2 / heights.sum())
    excess = max(0.0, float(heights.max()) - 1)
    # The rewards are those of a valid function: what exceeds 1 is cut off and fills up what is below 1 in proportion.
    heights = np.minimum(heights, 1.0)
    heights += (1 - heights) * ((n / 2 - heights.sum()) / (n - heights.sum()))
    overlaps = np.correlate(heights, 1 - heights, mode="full") * 2 / n
    context.note("output", str(heights.tolist()))
    context.note("function", f"{n} steps, heights from {heights.min():.4g} to {heights.max():.4g}, excess {excess:.3g}")
    error = (2 * n + 8) * 2**-52  # relative, of sums of at most n products that are not negative
    return {"overlap": float(overlaps.max()) * (1 + error), "steps": n, "excess": excess if excess > ROUNDING else 0.0}
