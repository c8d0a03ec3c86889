"""A symmetric step function: high in the middle, with shoulders."""

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
    return [min(max(height((2 * i + 1) / STEPS - 1), 0.0), 1.0) for i in range(STEPS)]


# EVOLVE-BLOCK-END
