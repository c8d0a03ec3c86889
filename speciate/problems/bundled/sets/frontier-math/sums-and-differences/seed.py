"""A set with a few gaps."""


# EVOLVE-BLOCK-START
def numbers():
    return [0, 1, 3, 4, 9, 10, 12, 13, 30]


# EVOLVE-BLOCK-END


def solve():
    return sorted({0, *(abs(int(x)) % 10**15 for x in numbers())})[:3000]
