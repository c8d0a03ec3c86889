"""Points on three nested triangles, and two more."""

N = 11


# EVOLVE-BLOCK-START
def place():
    """Return the points by barycentric weights of the corners (0, 0), (1, 0) and (0, 1), which need not add up to 1."""
    weights = [
        (8.0, 1.0, 0.3),
        (0.3, 8.0, 1.0),
        (1.0, 0.3, 8.0),
        (4.0, 4.2, 0.1),
        (0.1, 4.0, 4.2),
        (4.2, 0.1, 4.0),
        (5.0, 2.0, 2.4),
        (2.4, 5.0, 2.0),
        (2.0, 2.4, 5.0),
        (1.0, 7.0, 0.1),
        (3.0, 2.2, 2.9),
    ]
    return [[b / (a + b + c), c / (a + b + c)] for a, b, c in weights]


# EVOLVE-BLOCK-END


def solve():
    return (place() + [[0.3, 0.3]] * N)[:N]
