"""Score a packing of circles in the unit square."""

import math

from points import points_of

ROUNDING = 1e-6
ERROR = 1e-15  # more than the rounding of an overlap that is computed from numbers up to 2


def evaluate(candidate, context, count):
    """Return the rewards of the packing that ``solve()`` returns."""
    circles = candidate.call("solve").unwrap()
    if reason := points_of(circles, count, 3):
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


def largest_overlap(circles, width=1, height=1):
    """Return the largest overlap of two circles, or of a circle and the border; 0 for a valid packing."""
    worst = 0.0
    for i, (x, y, radius) in enumerate(circles):
        worst = max(worst, radius - x, radius - y, x + radius - width, y + radius - height)
        for other_x, other_y, other_radius in circles[:i]:
            worst = max(worst, radius + other_radius - math.hypot(x - other_x, y - other_y))
    return worst
