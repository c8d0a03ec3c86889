"""Score a packing of 32 circles in the unit square."""

import math

N = 32
ROUNDING = 1e-6
ERROR = 1e-15  # more than the rounding of an overlap that is computed from numbers up to 2


def evaluate(candidate, context):
    """Return the rewards of the packing that ``solve()`` returns."""
    circles = candidate.call("solve").unwrap()
    if reason := points_of(circles, N, 3):
        context.invalid(reason)
    if any(radius < 0 for _, _, radius in circles):
        context.invalid("a radius is negative")
    overlap = largest_overlap(circles)
    # Shrinking every radius by the largest overlap resolves all overlaps, so the scored packing is valid exactly.
    radii = [max(0.0, radius - overlap - ERROR) for _, _, radius in circles]
    context.note("output", str([[x, y, radius] for (x, y, _), radius in zip(circles, radii, strict=True)]))
    context.note("packing", f"largest overlap {overlap:.3g}, radii from {min(radii):.4f} to {max(radii):.4f}")
    return {
        "sum_of_radii": math.fsum(radii),
        "smallest_radius": min(radii),
        "overlap": overlap if overlap > ROUNDING else 0.0,
    }


def largest_overlap(circles):
    """Return the largest overlap of two circles, or of a circle and the border; 0 for a valid packing."""
    worst = 0.0
    for i, (x, y, radius) in enumerate(circles):
        worst = max(worst, radius - x, radius - y, x + radius - 1, y + radius - 1)
        for other_x, other_y, other_radius in circles[:i]:
            worst = max(worst, radius + other_radius - math.hypot(x - other_x, y - other_y))
    return worst


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
