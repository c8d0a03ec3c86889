"""Planck's law in natural units, and points to sample it at.

Feynman equation I.41.16 with the reduced Planck constant, the speed of light and Boltzmann's constant set to 1:
``omega ** 3 / (pi ** 2 * (exp(omega / temperature) - 1))``.
"""

import math

POINTS = 20
EVERYWHERE = (0.02, 20.0)
"""Bounds of omega / temperature."""


def law(omega, temperature):
    """Return the spectral energy density of black-body radiation, per unit of angular frequency and solid angle."""
    return omega**3 / (math.pi**2 * math.expm1(omega / temperature))


def sample(rng, low, high):
    """Return inputs with omega / temperature between two bounds, shape (20, 2)."""
    temperatures = [round(rng.uniform(1, 5), 3) for _ in range(POINTS)]
    return [[round(rng.uniform(low, high) * temperature, 4), temperature] for temperature in temperatures]
