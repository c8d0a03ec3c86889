"""Score ten points in the unit square. The candidate runs in another process and returns only JSON values."""

import math


def evaluate(candidate, context):
    """Return one finite number for every objective of problem.toml."""
    points = candidate.call("solve").unwrap()  # without an answer, the candidate's failure ends the evaluation
    if not is_list_of_points(points):
        context.invalid("solve: expected ten points [x, y], finite numbers")
    pairs = [(points[i], points[j]) for i in range(10) for j in range(i)]
    offsets = [math.dist(point, (0.5, 0.5)) for point in points]
    context.note("furthest", f"the furthest point is {max(offsets):.3f} from the middle")  # feedback for prompts
    return {
        "smallest_distance": min(math.dist(a, b) for a, b in pairs),
        "mean_offset": sum(offsets) / 10,
        "outside": float(sum(not (0 <= x <= 1 and 0 <= y <= 1) for x, y in points)),
    }


def is_list_of_points(value):
    """Return True if a value is ten pairs of numbers of plausible size; booleans are not numbers."""
    return (
        isinstance(value, list)
        and len(value) == 10
        and all(isinstance(point, list) and len(point) == 2 for point in value)
        and all(type(number) in (int, float) and abs(number) < 1e6 for point in value for number in point)
    )
