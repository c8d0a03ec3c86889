"""Score a packing of 21 circles in a rectangle of perimeter 4."""

import math

N = 21
ROUNDING = 1e-6
ERROR = 1e-15  # more than the rounding of an overlap that is computed from numbers up to 2


def evaluate(candidate, context):
    """Return the rewards of the packing that ``solve()`` returns."""
    answer = candidate.call("solve").unwrap()
    if not isinstance(answer, list) or len(answer) != 2 or not is_number(answer[0]) or not 0.1 <= answer[0] <= 1.9:
        context.invalid("expected [width, circles] with a width from 0.1 to 1.9")
    width, circles = answer
    if reason := points_of(circles, N, 3):
        context.invalid(reason)
    if any(radius < 0 for _, _, radius in circles):
        context.invalid("a radius is negative")
    overlap = largest_overlap(width, 2 - width, circles)
    # Shrinking every radius by the largest overlap resolves all overlaps, so the scored packing is valid exactly.
    radii = [max(0.0, radius - overlap - ERROR) for _, _, radius in circles]
    context.note("output", str([width, [[x, y, r] for (x, y, _), r in zip(circles, radii, strict=True)]]))
    context.note("packing", f"width {width:.5f}, largest overlap {overlap:.3g}, smallest radius {min(radii):.4f}")
    return {
        "sum_of_radii": math.fsum(radii),
        "smallest_radius": min(radii),
        "overlap": overlap if overlap > ROUNDING else 0.0,
    }


def largest_overlap(width, height, circles):
    """Return the largest overlap of two circles, or of a circle and the border; 0 for a valid packing."""
    worst = 0.0
    for i, (x, y, radius) in enumerate(circles):
        worst = max(worst, radius - x, radius - y, x + radius - width, y + radius - height)
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
