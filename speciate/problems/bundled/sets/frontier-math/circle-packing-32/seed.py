"""A grid of circles; four of its places stay empty."""

N = 32


def radii_of(points):
    """Return radii for given centres: half of the smallest gap, then grown one after the other."""
    gap = [[((a - c) ** 2 + (b - d) ** 2) ** 0.5 for c, d in points] for a, b in points]
    wall = [min(x, y, 1 - x, 1 - y) for x, y in points]
    radii = [min(wall[i], min(gap[i][j] for j in range(N) if j != i) / 2) for i in range(N)]
    for i in range(N):
        radii[i] = max(0.0, min(wall[i], *(gap[i][j] - radii[j] for j in range(N) if j != i)))
    return radii


def circles_at(points):
    """Return circles at N points of the square: what is missing is added in the middle, what is outside is moved in."""
    points = [[min(max(x, 0.0), 1.0) for x in point] for point in (points + [[0.5, 0.5]] * N)[:N]]
    return [[x, y, radius] for (x, y), radius in zip(points, radii_of(points), strict=True)]


# EVOLVE-BLOCK-START
def centres():
    """Return the centres: rows of circles, each with a number and a shift in tenths of a step."""
    rows = [(6, 0.0), (5, 5.0), (6, 0.0), (5, 5.0), (5, 0.0), (5, 5.0)]
    points = []
    for i, (count, shift) in enumerate(rows):
        y = (i + 0.5) / len(rows)
        points += [[(j + 0.5 + 0.1 * shift * (j > 2)) / 6.0, y] for j in range(count)]
    return points


def solve():
    return circles_at(centres())


# EVOLVE-BLOCK-END
