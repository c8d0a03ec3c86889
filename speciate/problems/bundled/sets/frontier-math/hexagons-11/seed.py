"""Hexagons in two rings around the middle."""

import math

N = 11


# EVOLVE-BLOCK-START
def place():
    """Return the centres and rotations: rings with a number, a distance and a turn in degrees."""
    rings = [(1, 0.0, 0.0), (4, 1.9, 30.0), (6, 3.6, 0.0)]
    placed = []
    for count, distance, turn in rings:
        for i in range(count):
            angle = 2 * math.pi * i / count + math.radians(turn)
            placed.append([distance * math.cos(angle), distance * math.sin(angle), 0.0])
    return placed


# EVOLVE-BLOCK-END


def solve():
    return (place() + [[0.0, 0.0, 0.0]] * N)[:N]
