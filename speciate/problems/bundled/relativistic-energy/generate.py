"""Write ``points.json``: the energy of a moving mass, sampled in three regions of its speed.

Feynman equation I.48.2: ``mass * light ** 2 / sqrt(1 - speed ** 2 / light ** 2)``.

Usage, in this directory: ``python generate.py > points.json``
"""

import json
import math
import random
import sys

SEED = 48_02
POINTS = 20
REGIONS = {"slow": (0.05, 0.3), "fast": (0.4, 0.8), "extreme": (0.9, 0.999)}
"""Bounds of speed / light."""
EVERYWHERE = (0.01, 0.9999)


def law(mass, speed, light):
    """Return the total energy of a mass at a speed below that of light."""
    return mass * light**2 / math.sqrt(1 - speed**2 / light**2)


def sample(rng, low, high):
    """Return inputs with speed / light between two bounds, shape (20, 3)."""
    pairs = [(round(rng.uniform(1, 5), 3), round(rng.uniform(3, 10), 3)) for _ in range(POINTS)]
    return [[mass, round(rng.uniform(low, high) * light, 4), light] for mass, light in pairs]


def regions():
    """Return each region's inputs, shape (20, 3), and outputs, shape (20,)."""
    rng = random.Random(SEED)  # noqa: S311  # points are to be the same everywhere, not secret
    sampled = {}
    for name, (low, high) in REGIONS.items():
        inputs = sample(rng, low, high)
        sampled[name] = {"inputs": inputs, "outputs": [law(*point) for point in inputs]}
    return sampled


if __name__ == "__main__":
    sys.stdout.write(json.dumps(regions()) + "\n")
