"""Score 13 points by the smallest triangle of three of them, as a share of their convex hull."""

from itertools import combinations

N = 13


def evaluate(candidate, context):
    """Return the rewards of the points that ``solve()`` returns."""
    points = candidate.call("solve").unwrap()
    if reason := points_of(points, N, 2):
        context.invalid(reason)
    hull = area_of_hull(points)
    if hull < 1e-9:
        context.invalid("the points lie on a line")
    areas = sorted(
        abs((bx - ax) * (cy - ay) - (cx - ax) * (by - ay)) / 2 / hull
        for (ax, ay), (bx, by), (cx, cy) in combinations(points, 3)
    )
    context.note("areas", f"smallest {areas[0]:.6f}, tenth {areas[9]:.6f}")
    return {"smallest_area": areas[0], "mean_of_smallest": sum(areas[:10]) / 10}


def area_of_hull(points):
    """Return the area of the convex hull (Andrew's monotone chain)."""
    ordered = sorted(map(tuple, points))
    hull = chain(ordered) + chain(ordered[::-1])
    return abs(sum(ax * by - bx * ay for (ax, ay), (bx, by) in zip(hull, hull[1:] + hull[:1], strict=False))) / 2


def chain(points):
    """Return one half of the hull, without its last point."""
    kept = []
    for x, y in points:
        while len(kept) > 1 and turn(kept[-2], kept[-1], (x, y)) <= 0:
            kept.pop()
        kept.append((x, y))
    return kept[:-1]


def turn(a, b, c):
    """Return twice the signed area of a triangle."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def points_of(value, count, dimensions):
    """Return the reason why the value is not a list of points, or None."""
    if not isinstance(value, list) or len(value) != count:
        return f"expected a list of {count} points"
    for i, point in enumerate(value):
        if not isinstance(point, list) or len(point) != dimensions or not all(is_number(x) for x in point):
            return f"point {i}: expected {dimensions} finite numbers"
    return None


def is_number(value):
    """Return True if a value is a finite number and not a boolean."""
    return type(value) in (int, float) and abs(value) <= 1e9
