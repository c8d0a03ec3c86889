"""Rows of circles in a rectangle."""

N = 21


def radii_of(width, points):
    """Return radii for given centres: half of the smallest gap, then grown one after the other."""
    gap = [[((a - c) ** 2 + (b - d) ** 2) ** 0.5 for c, d in points] for a, b in points]
    wall = [min(x, y, width - x, 2 - width - y) for x, y in points]
    radii = [min(wall[i], min(gap[i][j] for j in range(N) if j != i) / 2) for i in range(N)]
    for i in range(N):
        radii[i] = max(0.0, min(wall[i], *(gap[i][j] - radii[j] for j in range(N) if j != i)))
    return [max(0.0, radius) for radius in radii]


def circles_in(width, points):
    """Return a width and circles at N points: what is missing is added near a corner, what is outside is moved in."""
    width = min(max(width, 0.1), 1.9)
    points = [[min(max(x, 0.0), width), min(max(y, 0.0), 2 - width)] for x, y in (points + [[0.1, 0.1]] * N)[:N]]
    return [width, [[x, y, radius] for (x, y), radius in zip(points, radii_of(width, points), strict=True)]]


# EVOLVE-BLOCK-START
def layout():
    """Return the width and the centres: rows with a number of circles and a shift of each in tenths of a step."""
    width = 1.3
    rows = [(6, 0.0), (5, 5.0), (5, 0.0), (5, 5.0)]
    points = []
    for i, (count, shift) in enumerate(rows):
        y = (2 - width) * (i + 0.5) / len(rows)
        points += [[width * (j + 0.5 + 0.1 * shift * (j > 1)) / 6.0, y] for j in range(count)]
    return width, points


def solve():
    return circles_in(*layout())


# EVOLVE-BLOCK-END
