"""Points on rings of different heights."""

import math

N = 14


# EVOLVE-BLOCK-START
def place():
    """Return the points: rings with a number, a distance, a turn and a height."""
    rings = [(1, 0.0, 0.0, 1.3), (4, 1.0, 0.0, 0.75), (4, 1.1, 0.5, -0.1), (4, 1.0, 0.0, -0.9), (1, 0.0, 0.0, -1.4)]
    points = []
    for count, distance, turn, height in rings:
        for i in range(count):
            angle = 2 * math.pi * (i + turn) / count
            points.append([distance * math.cos(angle), distance * math.sin(angle), height])
    return points


# EVOLVE-BLOCK-END


def solve():
    spare = [[3.0 + i] + [0.0] * 2 for i in range(N)]
    return (place() + spare)[:N]
