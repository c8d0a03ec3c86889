"""Score 14 points in 3 dimensions by the ratio of their largest to their smallest distance."""

import distance_ratio

N = 14
DIMENSIONS = 3


def evaluate(candidate, context):
    """Return the rewards of the answer that ``solve()`` returns."""
    return distance_ratio.evaluate(candidate, context, N, DIMENSIONS)
