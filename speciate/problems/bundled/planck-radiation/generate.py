"""Write ``points.json``: Planck's law in natural units, sampled in three regions of quantum against temperature.

Feynman equation I.41.16 with the reduced Planck constant, the speed of light and Boltzmann's constant set to 1:
``omega ** 3 / (pi ** 2 * (exp(omega / temperature) - 1))``.

Usage, in this directory: ``python generate.py > points.json``
"""

import json
import math
import random
import sys

SEED = 41_16
POINTS = 20
REGIONS = {"low": (0.02, 0.2), "middle": (0.5, 3.0), "high": (4.0, 12.0)}
"""Bounds of omega / temperature."""
EVERYWHERE = (0.02, 20.0)


def law(omega, temperature):
    """Return the spectral energy density of black-body radiation, per unit of angular frequency and solid angle."""
    return omega**3 / (math.pi**2 * math.expm1(omega / temperature))


def sample(rng, low, high):
    """Return inputs with omega / temperature between two bounds, shape (20, 2)."""
    temperatures = [round(rng.uniform(1, 5), 3) for _ in range(POINTS)]
    return [[round(rng.uniform(low, high) * temperature, 4), temperature] for temperature in temperatures]


def regions():
    """Return each region's inputs, shape (20, 2), and outputs, shape (20,)."""
    rng = random.Random(SEED)  # noqa: S311  # points are to be the same everywhere, not secret
    sampled = {}
    for name, (low, high) in REGIONS.items():
        inputs = sample(rng, low, high)
        sampled[name] = {"inputs": inputs, "outputs": [law(*point) for point in inputs]}
    return sampled


if __name__ == "__main__":
    sys.stdout.write(json.dumps(regions()) + "\n")
