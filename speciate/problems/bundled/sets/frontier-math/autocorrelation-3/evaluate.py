"""Score a step function by a constant of its autoconvolution."""

import math

import numpy as np
from steps import scaled, steps_of


def evaluate(candidate, context):
    """Return the rewards of the heights that ``solve()`` returns."""
    heights = steps_of(candidate.call("solve").unwrap(), context, negative=True)
    n = len(heights)
    unit = scaled(heights)
    integral = math.fsum(unit)
    if integral <= 1e-9 * np.abs(unit).sum():
        context.invalid("the integral is not positive")
    values = 2 * n * np.convolve(unit, unit) / integral**2
    # Terms of both signs cancel, so the error of their sum is a share of the sum of their sizes.
    errors = (n + 8) * 2**-52 * 2 * n * np.convolve(np.abs(unit), np.abs(unit)) / integral**2
    context.note("output", str(heights.tolist()))
    context.note("function", f"{n} steps, heights from {heights.min():.4g} to {heights.max():.4g}")
    absolute = np.abs(values) + errors
    return {"c3": float((values + errors).max()), "c3_absolute": float(absolute.max()), "steps": n}
