"""Score 11 points in a triangle by the smallest triangle of three of them."""

from itertools import combinations

from points import points_of

N = 11
ERROR = 1e-15  # more than the rounding of an area of points in the triangle


def evaluate(candidate, context):
    """Return the rewards of the points that ``solve()`` returns."""
    points = candidate.call("solve").unwrap()
    if reason := points_of(points, N, 2):
        context.invalid(reason)
    inside = [list(moved(x, y)) for x, y in points]
    areas = sorted(
        abs((bx - ax) * (cy - ay) - (cx - ax) * (by - ay))  # twice the area: a share of the triangle of area 1/2
        for (ax, ay), (bx, by), (cx, cy) in combinations(inside, 3)
    )
    context.note("output", str(inside))
    context.note("areas", f"smallest {areas[0]:.6f}, tenth {areas[9]:.6f}")
    return {"smallest_area": max(0.0, areas[0] - ERROR), "mean_of_smallest": sum(areas[:10]) / 10}


def moved(x, y):
    """Return the nearest point of the triangle."""
    x, y = max(x, 0.0), max(y, 0.0)
    if x + y > 1:
        over = (x + y - 1) / 2
        x, y = x - over, y - over
        if x < 0:
            x, y = 0.0, 1.0
        elif y < 0:
            x, y = 1.0, 0.0
    x = min(x, 1.0)
    return x, min(y, 1 - x)  # the difference of large numbers is rounded
