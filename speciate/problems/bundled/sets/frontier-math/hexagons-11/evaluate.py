"""Score a packing of 11 unit hexagons in a regular hexagon."""

import hexagons

N = 11


def evaluate(candidate, context):
    """Return the rewards of the answer that ``solve()`` returns."""
    return hexagons.evaluate(candidate, context, N)
