"""Nearly first in, first out."""


# EVOLVE-BLOCK-START
def score(size, since_use, since_insertion, uses):
    """Return how much an object should leave."""
    return 1.0 * since_insertion + 0.05 * since_use + 0.1 * size - 0.5 * uses


def evict(caches):
    """Return, for each cache, the positions of the objects that leave: highest scores first, until there is room."""
    return [leaving(needed, objects) for needed, objects in caches]


# EVOLVE-BLOCK-END


def leaving(needed, objects):
    positions = []
    for i in sorted(range(len(objects)), key=lambda i: -score(*objects[i])):
        positions.append(i)
        needed -= objects[i][0]
        if needed <= 0:
            break
    return positions
