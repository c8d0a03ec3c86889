"""A step function with raised ends."""

# EVOLVE-BLOCK-START
STEPS = 60


def height(x):
    """Return the height at x from 0 to 1."""
    edge = 0.1
    if x < edge or x > 1 - edge:
        return 1.6
    return 1.0 + 0.4 * (2 * x - 1) ** 2


def solve():
    return [max(0.0, height((i + 0.5) / STEPS)) for i in range(STEPS)]


# EVOLVE-BLOCK-END
