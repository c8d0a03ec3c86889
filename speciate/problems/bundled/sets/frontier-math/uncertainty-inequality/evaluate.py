"""Score a function that equals its Fourier transform by its last sign change, with 600 digits and a Sturm sequence."""

import itertools
import math
from decimal import Decimal, localcontext

MOST = 16
LARGEST = 1000
PRECISION = 600
KEPT = 150  # digits of the polynomial whose roots are counted; elimination and division lose about 200 of the 600
BITS = 48


def evaluate(candidate, context):
    """Return the rewards of the double roots that ``solve()`` returns."""
    answer = candidate.call("solve").unwrap()
    if not isinstance(answer, list) or len(answer) > MOST:
        context.invalid(f"expected a list of at most {MOST} double roots")
    if not all(type(x) in (int, float) and 0 < x <= LARGEST for x in answer):
        context.invalid(f"expected positive numbers up to {LARGEST}")
    roots = sorted(Decimal(x) for x in answer)
    if any(b - a < Decimal("1e-6") for a, b in itertools.pairwise([Decimal(0), *roots])):
        context.invalid("expected double roots that are 1e-6 or more apart and from 0")
    with localcontext(prec=PRECISION):
        polynomial = combination(roots)
        if polynomial is None:
            context.invalid("these double roots determine no function")
        for root in (Decimal(0), *roots, *roots):
            polynomial = divided(polynomial, root)
        last = largest_root(whole(polynomial))
    context.note("output", str(answer))
    context.note("function", f"{len(roots)} double roots, last sign change at z = {last:.8g}")
    return {"bound": last / (2 * math.pi), "double_roots": len(roots)}


def combination(roots):
    """Return the coefficients, lowest first, of the combination of Laguerre polynomials with the roots; None if none.

    L_0, L_2, L_4, … with parameter -1/2 at z = 2 pi x^2 are, times exp(-pi x^2), their own Fourier transforms.
    """
    basis = [laguerre(2 * k) for k in range(2 * len(roots) + 2)]
    rows = [[p[0] for p in basis]]
    for root in roots:
        rows += [[value(p, root) for p in basis], [value(slope(p), root) for p in basis]]
    weights = kernel(rows)
    if weights is None:
        return None
    return [sum(w * p[i] for w, p in zip(weights, basis, strict=True) if i < len(p)) for i in range(len(basis[-1]))]


def laguerre(n):
    """Return the coefficients of the Laguerre polynomial of degree n with parameter -1/2, lowest first; L(0) = 1."""
    found = [Decimal(1)]
    for i in range(n):
        found.append(found[-1] * (-2 * (n - i)) / ((i + 1) * (2 * i + 1)))
    return found


def kernel(rows):
    """Return the vector that all rows are orthogonal to, with last entry 1; None if it is not unique."""
    rows = [[x / max(map(abs, row)) for x in row] for row in rows]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(rows[i][column]))
        if abs(rows[pivot][column]) < Decimal("1e-300"):
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column]
        for i in range(size):
            if i != column:
                share = rows[i][column] / head[column]
                rows[i] = [a - share * b for a, b in zip(rows[i], head, strict=True)]
    return [-rows[i][size] / rows[i][i] for i in range(size)] + [Decimal(1)]


def slope(polynomial):
    """Return the derivative of a polynomial."""
    return [i * c for i, c in enumerate(polynomial)][1:]


def value(polynomial, x):
    """Return a polynomial's value."""
    total = 0
    for coefficient in reversed(polynomial):
        total = total * x + coefficient
    return total


def divided(polynomial, root):
    """Return a polynomial divided by (z - root), one of its roots."""
    found = [polynomial[-1]]
    for coefficient in polynomial[-2:0:-1]:
        found.append(coefficient + root * found[-1])
    return found[::-1]


def whole(polynomial):
    """Return the coefficients as integers: multiplied by one power of ten, the largest with ``KEPT`` digits."""
    shift = KEPT - max(c.adjusted() for c in polynomial if c)
    return [int(c.scaleb(shift).to_integral_value()) for c in polynomial]


def primitive(polynomial):
    """Return an integer polynomial divided by the greatest common divisor of its coefficients."""
    common = math.gcd(*polynomial)
    return [c // common for c in polynomial]


def largest_root(polynomial):
    """Return the largest positive root, by bisection with a Sturm sequence (Basu, Pollack & Roy 2006, section 2.2)."""
    chain = [polynomial, primitive(slope(polynomial))]
    while len(chain[-1]) > 1 and (rest := remainder(chain[-2], chain[-1])):
        chain.append(primitive([-c for c in rest]))
    at_infinity = changes([p[-1] for p in chain])
    low, high = 0, 1 << BITS  # in units of 2^-BITS
    while changes([scaled_value(p, high) for p in chain]) != at_infinity:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        above = changes([scaled_value(p, middle) for p in chain]) == at_infinity
        low, high = (low, middle) if above else (middle, high)
    return high / (1 << BITS)


def scaled_value(polynomial, x):
    """Return the value at x / 2^BITS times a power of two that makes it an integer."""
    total = 0
    for i, coefficient in enumerate(reversed(polynomial)):
        total = total * x + (coefficient << BITS * i)
    return total


def remainder(first, second):
    """Return a positive multiple of the remainder of a division of integer polynomials, without leading zeros."""
    rest, lead = first[:], second[-1]
    while len(rest) >= len(second):
        top = rest.pop()
        shift = len(rest) - len(second) + 1
        rest = [abs(lead) * c for c in rest]
        for i, c in enumerate(second[:-1]):
            rest[shift + i] -= (top if lead > 0 else -top) * c
    while rest and not rest[-1]:
        rest.pop()
    return rest


def changes(values):
    """Return the number of sign changes in a sequence, zeros left out."""
    signs = [v > 0 for v in values if v]
    return sum(a != b for a, b in itertools.pairwise(signs))
