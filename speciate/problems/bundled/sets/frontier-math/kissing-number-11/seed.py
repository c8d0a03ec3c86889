"""The roots of the lattice D11: all vectors with two entries of size 1."""

from itertools import combinations

DIMENSIONS = 11


# EVOLVE-BLOCK-START
def vectors():
    found = []
    for i, j in combinations(range(DIMENSIONS), 2):
        for a in (1, -1):
            for b in (1, -1):
                vector = [0] * DIMENSIONS
                vector[i], vector[j] = a, b
                found.append(vector)
    return found


# EVOLVE-BLOCK-END


def solve():
    return [[int(x) for x in vector] for vector in vectors()][:2000]
