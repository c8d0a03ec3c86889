"""Score a packing of unit hexagons in a regular hexagon."""

import itertools
import math

from points import points_of

ROUNDING = 1e-6
ERROR = 1e-13  # more than the rounding of depths and sides of a packing with an outer side up to 10
APOTHEM = math.sqrt(3) / 2


def evaluate(candidate, context, count):
    """Return the rewards of the packing that ``solve()`` returns."""
    placed = candidate.call("solve").unwrap()
    if reason := points_of(placed, count, 3):
        context.invalid(reason)
    hexagons = [corners(*hexagon) for hexagon in placed]
    overlap = max(depth(hexagons[i], hexagons[j]) for i in range(count) for j in range(i))
    if overlap <= ROUNDING:
        # Centres are at least sqrt(3) minus the overlap apart along some normal: this scale resolves all overlaps.
        apart = 1 + (overlap + ERROR) / (2 * APOTHEM - overlap)
        placed = [[apart * x, apart * y, degrees] for x, y, degrees in placed]
    side = outer_side([corner for hexagon in placed for corner in corners(*hexagon)]) + ERROR
    context.note("output", str(placed))
    context.note("packing", f"outer side {side:.6f}, deepest overlap {overlap:.3g}")
    return {"outer_side": side, "overlap": overlap if overlap > ROUNDING else 0.0}


def corners(x, y, degrees):
    """Return the corners of a unit hexagon, counter-clockwise."""
    turn = math.radians(degrees % 60)
    return [(x + math.cos(turn + k * math.pi / 3), y + math.sin(turn + k * math.pi / 3)) for k in range(6)]


def depth(first, second):
    """Return the depth of the overlap of two convex polygons: the shortest shift that separates them, 0 if none."""
    least = math.inf
    for polygon in (first, second):
        for (ax, ay), (bx, by) in itertools.pairwise(polygon):
            length = math.hypot(bx - ax, by - ay)
            nx, ny = (by - ay) / length, (ax - bx) / length
            a = [nx * x + ny * y for x, y in first]
            b = [nx * x + ny * y for x, y in second]
            least = min(least, max(a) - min(b), max(b) - min(a))
            if least <= 0:
                return 0.0
    return least


def outer_side(points):
    """Return the side of the smallest regular hexagon around the origin that holds all points, over all rotations."""

    def side(turn):
        normals = [(math.cos(turn + k * math.pi / 3), math.sin(turn + k * math.pi / 3)) for k in range(6)]
        return max(nx * x + ny * y for nx, ny in normals for x, y in points) / APOTHEM

    # The side has a few minima over the rotations: the best of 120 samples are refined.
    steps = 120
    turns = sorted(range(steps), key=lambda i: side(i * math.pi / 3 / steps))[:6]
    return min(golden(side, (i - 1) * math.pi / 3 / steps, (i + 1) * math.pi / 3 / steps) for i in turns)


def golden(function, low, high):
    """Return the least value of a function between two bounds by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = function(a), function(b)
    while high - low > 1e-8:
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = function(a)
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = function(b)
    return min(fa, fb)
