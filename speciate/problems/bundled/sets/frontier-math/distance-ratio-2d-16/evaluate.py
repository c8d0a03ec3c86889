"""Score 16 points in 2 dimensions by the ratio of their largest to their smallest distance."""

N = 16
DIMENSIONS = 2
UP = 1 + 2e-15  # more than the rounding of a ratio of squared distances


def evaluate(candidate, context):
    """Return the rewards of the points that ``solve()`` returns."""
    points = candidate.call("solve").unwrap()
    if reason := points_of(points, N, DIMENSIONS):
        context.invalid(reason)
    squares = [[sum((a - b) ** 2 for a, b in zip(p, q, strict=False)) for q in points] for p in points]
    nearest = [min(row[:i] + row[i + 1 :]) for i, row in enumerate(squares)]
    largest = max(map(max, squares))
    if min(nearest) <= 1e-12 * largest or largest <= 0:
        context.invalid("two points coincide")
    mean = sum(value**0.5 for value in nearest) / N
    context.note("output", str(points))
    context.note("distances", f"nearest neighbours from {min(nearest) ** 0.5:.5f} to {max(nearest) ** 0.5:.5f}")
    return {"squared_ratio": largest / min(nearest) * UP, "second_ratio": largest / mean**2}


def points_of(value, count, dimensions):
    """Return the reason why the value is not a list of points, or None."""
    if not isinstance(value, list) or len(value) != count:
        return f"expected a list of {count} points"
    for i, point in enumerate(value):
        if not isinstance(point, list) or len(point) != dimensions or not all(is_number(x) for x in point):
            return f"point {i}: expected {dimensions} finite numbers"
    return None


def is_number(value):
    """Return True if a value is a finite number and not a boolean."""
    return type(value) in (int, float) and abs(value) <= 1e9
