"""Score a kissing configuration in 11 dimensions, in exact integer arithmetic."""

DIMENSIONS = 11
MOST = 2000
LARGEST = 10**15


def evaluate(candidate, context):
    """Return the rewards of the vectors that ``solve()`` returns."""
    vectors = candidate.call("solve").unwrap()
    if not isinstance(vectors, list) or not 1 <= len(vectors) <= MOST:
        context.invalid(f"expected a list of 1 to {MOST} vectors")
    for i, vector in enumerate(vectors):
        if not isinstance(vector, list) or len(vector) != DIMENSIONS:
            context.invalid(f"vector {i}: expected {DIMENSIONS} whole numbers")
        if not all(type(x) is int and abs(x) < LARGEST for x in vector):
            context.invalid(f"vector {i}: expected whole numbers of at most 15 digits")
        if not any(vector):
            context.invalid(f"vector {i} is zero")
    norms = [sum(x * x for x in vector) for vector in vectors]
    largest = max(norms)
    conflicts, kept, gone = 0, 0, set()
    for i, vector in enumerate(vectors):
        near = 0
        for j in range(i):
            # |v - w|^2 < max |u|^2 means that two spheres overlap.
            if norms[i] + norms[j] - 2 * sum(a * b for a, b in zip(vector, vectors[j], strict=False)) < largest:
                conflicts += 1
                near += j not in gone
        if near:
            gone.add(i)
        else:
            kept += 1
    context.note("output", str(vectors))
    context.note("vectors", f"{len(vectors)} vectors, {conflicts} pairs too close, {kept} kept")
    return {"spheres": len(vectors), "kept": kept, "conflicts": conflicts}
