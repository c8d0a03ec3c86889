"""Two rounds of merging, then six of odd-even transposition: 29 comparators, and a few inputs stay unsorted."""

WIRES = 8


class Network:
    """A list of comparators; wire numbers wrap around, and a wire is never compared with itself."""

    def __init__(self):
        self.pairs = []

    def compare(self, a, b):
        low, high = sorted((round(a) % WIRES, round(b) % WIRES))
        if low != high:
            self.pairs.append([low, high])


# EVOLVE-BLOCK-START
def build(network):
    network.compare(0, 1)
    network.compare(2, 3)
    network.compare(4, 5)
    network.compare(6, 7)
    network.compare(0, 2)
    network.compare(1, 3)
    network.compare(4, 6)
    network.compare(5, 7)
    network.compare(1, 2)
    network.compare(3, 4)
    network.compare(5, 6)
    network.compare(0, 1)
    network.compare(2, 3)
    network.compare(4, 5)
    network.compare(6, 7)
    network.compare(1, 2)
    network.compare(3, 4)
    network.compare(5, 6)
    network.compare(0, 1)
    network.compare(2, 3)
    network.compare(4, 5)
    network.compare(6, 7)
    network.compare(1, 2)
    network.compare(3, 4)
    network.compare(5, 6)
    network.compare(0, 1)
    network.compare(2, 3)
    network.compare(4, 5)
    network.compare(6, 7)


# EVOLVE-BLOCK-END


def solve():
    network = Network()
    build(network)
    return network.pairs
