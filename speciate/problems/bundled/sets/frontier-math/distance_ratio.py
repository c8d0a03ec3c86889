"""Score points by the ratio of their largest to their smallest distance."""

import math

from points import points_of

UP = 1 + 2e-15  # more than the rounding of a ratio of squared distances


def evaluate(candidate, context, count, dimensions):
    """Return the rewards of the points that ``solve()`` returns."""
    points = candidate.call("solve").unwrap()
    if reason := points_of(points, count, dimensions):
        context.invalid(reason)
    # In a power of two near the largest distance, or the squares of tiny distances would underflow.
    exponent = math.frexp(max(max(axis) - min(axis) for axis in zip(*points, strict=True)))[1]
    squares = [
        [sum(math.ldexp(a - b, -exponent) ** 2 for a, b in zip(p, q, strict=True)) for q in points] for p in points
    ]
    nearest = [min(row[:i] + row[i + 1 :]) for i, row in enumerate(squares)]
    largest = max(map(max, squares))
    if min(nearest) <= 1e-12 * largest or largest <= 0:
        context.invalid("two points coincide")
    mean = sum(value**0.5 for value in nearest) / count
    context.note("output", str(points))
    low, high = (math.ldexp(end(nearest) ** 0.5, exponent) for end in (min, max))
    context.note("distances", f"nearest neighbours from {low:.5f} to {high:.5f}")
    return {"squared_ratio": largest / min(nearest) * UP, "second_ratio": largest / mean**2}
