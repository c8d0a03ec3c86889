"""Score 13 points by the smallest triangle of three of them, as a share of their convex hull."""

import heilbronn_convex

N = 13


def evaluate(candidate, context):
    """Return the rewards of the answer that ``solve()`` returns."""
    return heilbronn_convex.evaluate(candidate, context, N)
