"""The energy of a moving mass, and points to sample it at.

Feynman equation I.48.2: ``mass * light ** 2 / sqrt(1 - speed ** 2 / light ** 2)``.
"""

import math

POINTS = 20
EVERYWHERE = (0.01, 0.9999)
"""Bounds of speed / light."""


def law(mass, speed, light):
    """Return the total energy of a mass at a speed below that of light."""
    return mass * light**2 / math.sqrt(1 - speed**2 / light**2)


def sample(rng, low, high):
    """Return inputs with speed / light between two bounds, shape (20, 3)."""
    pairs = [(round(rng.uniform(1, 5), 3), round(rng.uniform(3, 10), 3)) for _ in range(POINTS)]
    return [[mass, round(rng.uniform(low, high) * light, 4), light] for mass, light in pairs]
