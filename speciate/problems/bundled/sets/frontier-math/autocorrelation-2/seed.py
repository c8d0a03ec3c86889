"""A step function with raised ends."""


def sampled(height, steps):
    """Return the heights at the middles of the steps, 0 for negative ones."""
    return [max(0.0, height((i + 0.5) / steps)) for i in range(steps)]


# EVOLVE-BLOCK-START
STEPS = 60


def height(x):
    """Return the height at x from 0 to 1."""
    edge = 0.1
    if x < edge or x > 1 - edge:
        return 1.6
    return 1.0 + 0.4 * (2 * x - 1) ** 2


def solve():
    return sampled(height, STEPS)


# EVOLVE-BLOCK-END
