"""A symmetric step function: high in the middle, with shoulders."""


def sampled(height, steps):
    """Return the heights at the middles of the steps, between 0 and 1."""
    return [min(max(height((2 * i + 1) / steps - 1), 0.0), 1.0) for i in range(steps)]


# EVOLVE-BLOCK-START
STEPS = 50


def height(x):
    """Return the height at x from -1 to 1; 0 is the middle."""
    x = abs(x)
    if x < 0.2:
        return 1.0
    if x < 0.6:
        return 0.6
    return 0.3


def solve():
    return sampled(height, STEPS)


# EVOLVE-BLOCK-END
