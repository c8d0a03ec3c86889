"""Score a packing of 21 circles in a rectangle of perimeter 4."""

import math

from circles import ERROR, ROUNDING, largest_overlap
from points import is_number, points_of

N = 21


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
    overlap = largest_overlap(circles, width, 2 - width)
    # Shrinking every radius by the largest overlap resolves all overlaps, so the scored packing is valid exactly.
    radii = [max(0.0, radius - overlap - ERROR) for _, _, radius in circles]
    context.note("output", str([width, [[x, y, r] for (x, y, _), r in zip(circles, radii, strict=True)]]))
    context.note("packing", f"width {width:.5f}, largest overlap {overlap:.3g}, smallest radius {min(radii):.4f}")
    return {
        "sum_of_radii": math.fsum(radii),
        "smallest_radius": min(radii),
        "overlap": overlap if overlap > ROUNDING else 0.0,
    }
