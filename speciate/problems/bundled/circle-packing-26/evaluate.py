"""Score a packing of 26 circles in the unit square."""

import math

N = 26
ROUNDING = 1e-6
ERROR = 1e-15  # more than the rounding of an overlap that is computed from numbers up to 2


def evaluate(candidate, context):
    """Return the rewards of the packing that ``solve()`` returns."""
    circles = candidate.call("solve").unwrap()
    if reason := malformed(circles):
        context.invalid(reason)
    overlap = largest_overlap(circles)
    # Shrinking every radius by the largest overlap resolves all overlaps, so the scored packing is valid exactly.
    radii = [max(0.0, radius - overlap - ERROR) for _, _, radius in circles]
    context.note("packing", f"largest overlap {overlap:.3g}, radii from {min(radii):.4f} to {max(radii):.4f}")
    return {
        "sum_of_radii": math.fsum(radii),
        "smallest_radius": min(radii),
        "covered_area": math.pi * math.fsum(radius * radius for radius in radii),
        "overlap": overlap if overlap > ROUNDING else 0.0,
    }


def malformed(circles):
    """Return the reason why the value is not 26 circles with centres in the square, or None."""
    if not isinstance(circles, list) or len(circles) != N:
        return f"expected a list of {N} circles"
    for i, circle in enumerate(circles):
        if not isinstance(circle, list) or len(circle) != 3 or not all(is_number(value) for value in circle):
            return f"circle {i}: expected [x, y, radius], three finite numbers"
        x, y, radius = circle
        if not (0 <= x <= 1 and 0 <= y <= 1 and 0 <= radius <= 1):
            return f"circle {i}: expected a centre inside the unit square and a radius from 0 to 1"
    return None


def is_number(value):
    """Return True if a value is a finite number and not a boolean."""
    return type(value) in (int, float) and abs(value) <= 1e9


def largest_overlap(circles):
    """Return the largest overlap of two circles, or of a circle and the border; 0 for a valid packing."""
    worst = 0.0
    for i, (x, y, radius) in enumerate(circles):
        worst = max(worst, radius - x, radius - y, x + radius - 1, y + radius - 1)
        for other_x, other_y, other_radius in circles[:i]:
            worst = max(worst, radius + other_radius - math.hypot(x - other_x, y - other_y))
    return worst
