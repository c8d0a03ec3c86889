"""Score a set of whole numbers by its sums and differences, counted exactly."""

import math

MOST = 3000
LARGEST = 10**15


def evaluate(candidate, context):
    """Return the rewards of the set that ``solve()`` returns."""
    numbers = candidate.call("solve").unwrap()
    if not isinstance(numbers, list) or not 2 <= len(numbers) <= MOST:
        context.invalid(f"expected a list of 2 to {MOST} whole numbers")
    if not all(type(x) is int and 0 <= x < LARGEST for x in numbers):
        context.invalid(f"expected whole numbers from 0 to {LARGEST - 1}")
    if 0 not in numbers or len(set(numbers)) != len(numbers):
        context.invalid("expected different numbers, one of them 0")
    sums = {a + b for a in numbers for b in numbers}
    differences = {a - b for a in numbers for b in numbers}
    exponent = 1 + math.log(len(differences) / len(sums)) / math.log(2 * max(numbers) + 1)
    context.note("output", str(numbers))
    context.note("set", f"{len(numbers)} numbers, {len(sums)} sums, {len(differences)} differences")
    return {"exponent": exponent, "size": len(numbers)}
