"""Two rows of points. Search changes what stands between the two marks."""


# EVOLVE-BLOCK-START
def points():
    lower = [[0.2 + 0.15 * i, 0.35] for i in range(5)]
    upper = [[0.2 + 0.15 * i, 0.65] for i in range(5)]
    return lower + upper


# EVOLVE-BLOCK-END


def solve():
    return points()
