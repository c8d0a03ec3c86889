"""Points on an outer and an inner ring."""

import math

N = 13


# EVOLVE-BLOCK-START
def place():
    """Return the points: rings with a number, a distance, a turn and a stretch of the x axis."""
    rings = [(8, 5.0, 0.1, 1.1), (4, 2.6, 0.35, 0.9), (1, 0.3, 0.2, 1.0)]
    points = []
    for count, distance, turn, stretch in rings:
        for i in range(count):
            angle = 2 * math.pi * (i + turn) / count
            points.append([stretch * distance * math.cos(angle), distance * math.sin(angle)])
    return points


# EVOLVE-BLOCK-END


def solve():
    return (place() + [[0.0, 0.0]] * N)[:N]
