"""Score a comparator network on all 256 inputs of zeros and ones at once (the zero-one principle)."""

WIRES = 8
MAX_COMPARATORS = 64
INPUTS = range(1 << WIRES)
# Bit v of WAVES[i] is the value of input number v on wire i, so that one "and" compares two wires on all inputs.
WAVES = [sum(1 << v for v in INPUTS if v >> i & 1) for i in range(WIRES)]


def evaluate(candidate, context):
    """Return the network's size and depth, and how many of the 256 inputs it leaves unsorted."""
    network = candidate.call("solve").unwrap()
    if reason := malformed(network):
        context.invalid(reason)
    unsorted = unsorted_inputs(network)
    ones = sorted({v.bit_count() for v in INPUTS if unsorted >> v & 1})
    context.note(
        "unsorted", f"{unsorted.bit_count()} of 256 inputs come out unsorted" + (f", with {ones} ones" if ones else "")
    )
    return {"comparators": float(len(network)), "depth": float(depth(network)), "unsorted": float(unsorted.bit_count())}


def malformed(network):
    """Return the reason why the value is not a list of comparators, or None."""
    if not isinstance(network, list) or len(network) > MAX_COMPARATORS:
        return f"expected a list of at most {MAX_COMPARATORS} comparators"
    for i, pair in enumerate(network):
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(wire) is int for wire in pair):
            return f"comparator {i}: expected [a, b], two whole numbers"
        if not all(0 <= wire < WIRES for wire in pair) or pair[0] == pair[1]:
            return f"comparator {i}: expected two different wires from 0 to {WIRES - 1}"
    return None


def unsorted_inputs(network):
    """Return the set, as bits, of the inputs that the network does not sort."""
    waves = list(WAVES)
    for low, high in network:
        waves[low], waves[high] = waves[low] & waves[high], waves[low] | waves[high]
    unsorted = 0
    for wire in range(WIRES - 1):
        unsorted |= waves[wire] & ~waves[wire + 1]
    return unsorted


def depth(network):
    """Return the number of steps when comparators on different wires work at the same time."""
    step = [0] * WIRES
    for low, high in network:
        step[low] = step[high] = max(step[low], step[high]) + 1
    return max(step)
