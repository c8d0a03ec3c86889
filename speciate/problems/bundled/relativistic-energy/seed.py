"""Energy at rest and Newton's energy of motion (in other proportions): near the truth only for slow masses."""


# EVOLVE-BLOCK-START
def formula(mass, speed, light):
    beta = speed / light
    rest = mass * light * light
    factor = 1.1 + 0.4 * beta * beta
    return rest * factor**1.2


# EVOLVE-BLOCK-END


def predict(points):
    return [formula(*point) for point in points]
