"""The law of Rayleigh and Jeans (1900) with a guessed cutoff: near the truth only where the frequency is low."""

import math

PI = math.pi


def exp(x):
    return math.exp(min(x, 700.0))


# EVOLVE-BLOCK-START
def formula(omega, temperature):
    ratio = omega / temperature
    cutoff = 0.01 * exp(0.8 * ratio) - 0.01
    density = omega * omega * omega / PI / 3.0
    return density / (1.0 * ratio + cutoff)


# EVOLVE-BLOCK-END


def predict(points):
    return [formula(*point) for point in points]
