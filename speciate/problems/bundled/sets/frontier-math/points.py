"""Check answers that are lists of points or heights."""


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
