"""Score a tour of nine points. The candidate is a text, which no program executes."""

import json
import math

POINTS = [(0, 0), (2, 2), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (2, 1), (1, 2)]


def score(text, context):
    """Return one finite number for every objective of problem.toml."""
    try:
        tour = json.loads(text)
    except (ValueError, RecursionError) as error:
        context.invalid(f"not JSON: {error}")
    if not isinstance(tour, list) or any(type(i) is not int for i in tour) or sorted(tour) != list(range(9)):
        context.invalid("expected the numbers 0 to 8, each once")
    points = [POINTS[i] for i in tour]
    steps = [math.dist(a, b) for a, b in zip(points, points[1:] + points[:1], strict=True)]
    context.note("longest", f"the longest step is step {steps.index(max(steps)) + 1} of 9")  # feedback for prompts
    return {"length": sum(steps), "longest_step": max(steps)}
