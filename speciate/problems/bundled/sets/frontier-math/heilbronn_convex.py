"""Score points by the smallest triangle of three of them, as a share of their convex hull."""

from itertools import combinations

from points import points_of


def evaluate(candidate, context, count):
    """Return the rewards of the points that ``solve()`` returns."""
    points = candidate.call("solve").unwrap()
    if reason := points_of(points, count, 2):
        context.invalid(reason)
    # Integers, because sums of products of floats would be inexact, far from the origin by as much as the hull.
    exact = whole(points)
    hull = doubled_area_of_hull(exact)
    if not hull:
        context.invalid("the points lie on a line")
    doubled = sorted(abs(turn(a, b, c)) for a, b, c in combinations(exact, 3))
    context.note("output", str(points))
    context.note("areas", f"smallest {doubled[0] / hull:.6f}, tenth {doubled[9] / hull:.6f}")
    return {"smallest_area": doubled[0] / hull, "mean_of_smallest": sum(doubled[:10]) / (10 * hull)}


def whole(points):
    """Return the coordinates as integers, in a unit of which all are multiples: floats are binary fractions."""
    ratios = [[x.as_integer_ratio() for x in point] for point in points]
    unit = max(denominator for point in ratios for _, denominator in point)
    return [[number * (unit // denominator) for number, denominator in point] for point in ratios]


def doubled_area_of_hull(points):
    """Return twice the area of the convex hull (Andrew's monotone chain)."""
    ordered = sorted(map(tuple, points))
    hull = chain(ordered) + chain(ordered[::-1])
    return abs(sum(ax * by - bx * ay for (ax, ay), (bx, by) in zip(hull, hull[1:] + hull[:1], strict=True)))


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
