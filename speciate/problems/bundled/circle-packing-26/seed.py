"""Rings of centres, pushed apart while their circles grow; then every radius becomes as large as it can be."""

import math

N = 26


def ring(count, distance, turn):
    """Return `count` points around the middle of the square, at a distance in tenths and turned by a part of a step."""
    angles = [2 * math.pi * (i + turn) / count for i in range(count)]
    return [[0.5 + 0.1 * distance * math.cos(angle), 0.5 + 0.1 * distance * math.sin(angle)] for angle in angles]


def relax(points, radii, tens, growth, push, shrink):
    """Let all circles grow by thousandths; those that overlap move apart by a share of it and shrink by another."""
    for _ in range(min(round(10 * tens), 200)):
        for i in range(len(points)):
            for j in range(i):
                dx, dy = points[i][0] - points[j][0], points[i][1] - points[j][1]
                reach = radii[i] + radii[j]
                if dx * dx + dy * dy < reach * reach:
                    distance = math.hypot(dx, dy) + 1e-9
                    overlap = reach - distance
                    for point, sign in ((points[i], 1), (points[j], -1)):
                        point[0] += sign * push * overlap * dx / distance
                        point[1] += sign * push * overlap * dy / distance
                    radii[i] -= shrink * overlap
                    radii[j] -= shrink * overlap
        for i, point in enumerate(points):
            point[:] = [min(max(value, radii[i]), 1 - radii[i]) for value in point]
            radii[i] += 0.001 * growth


def largest_radii(points):
    """Grow one circle after the other until it touches a neighbour or the border."""
    gaps = [[math.dist(point, other) for other in points] for point in points]
    walls = [min(x, y, 1 - x, 1 - y) for x, y in points]
    radii = [min(walls[i], min(gaps[i][j] for j in range(N) if j != i) / 2) for i in range(N)]
    for i in range(N):
        radii[i] = max(0.0, min(walls[i], *(gaps[i][j] - radii[j] for j in range(N) if j != i)))
    return radii


def circles_at(points):
    """Return circles at N points of the square: what is missing is added on a ring, what is outside is moved in."""
    points = [[min(max(value, 0.0), 1.0) for value in point] for point in (points + ring(N, 5.5, 0.0))[:N]]
    return [[x, y, radius] for (x, y), radius in zip(points, largest_radii(points), strict=True)]


# EVOLVE-BLOCK-START
def circles():
    points = ring(1, 0.0, 0.0) + ring(8, 1.5, 0.0) + ring(17, 3.6, 0.1)
    radii = [0.05] * len(points)
    relax(points, radii, 0.4, 2.0, 0.2, 0.1)
    relax(points, radii, 0.4, 2.0, 0.2, 0.1)
    relax(points, radii, 0.4, 2.0, 0.2, 0.1)
    relax(points, radii, 0.4, 2.0, 0.2, 0.1)
    return circles_at(points)


# EVOLVE-BLOCK-END


def solve():
    return circles()
