"""Double roots at growing distances."""


# EVOLVE-BLOCK-START
def double_roots():
    """Return the double roots in z = 2 pi x^2."""
    found = []
    place, gap = 3.6, 2.4
    for _ in range(2):
        found.append(place)
        place += gap
        gap *= 1.5
    return found


# EVOLVE-BLOCK-END


def solve():
    return [float(z) for z in double_roots()][:16]
