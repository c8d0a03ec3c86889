"""Points on rings."""

import math

N = 16


# EVOLVE-BLOCK-START
def place():
    """Return the points: rings with a number, a distance, a turn."""
    rings = [(1, 0.0, 0.0), (5, 1.0, 0.0), (10, 1.95, 0.3)]
    points = []
    for count, distance, turn in rings:
        for i in range(count):
            angle = 2 * math.pi * (i + turn) / count
            points.append([distance * math.cos(angle), distance * math.sin(angle)])
    return points


# EVOLVE-BLOCK-END


def solve():
    spare = [[3.0 + i] + [0.0] * 1 for i in range(N)]
    return (place() + spare)[:N]
