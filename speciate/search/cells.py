"""Trade-off cells: a fixed lattice of weightings of the objectives, with one elite each.

The archive keeps the best candidate under every weighting of a small lattice, so that a specialist survives even if its
sum is poor. The lattice depends on the number of objectives alone, so it is the same for every island, run and machine,
and has at most ``MAX_TRADE_OFFS`` weightings.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from speciate.domain.arrays import FloatArray

MAX_TRADE_OFFS: Final = 24
"""Most weightings in a lattice, for any number of objectives."""

DECLARED: Final = "declared"
"""Cell that ranks by the problem's declared weights, if there are any."""

CLOCKED: Final = "@"
"""First character of cells that rank by time: they hold the latest candidate, not the best."""

TARGET: Final = "target:"
"""Prefix of the cells that keep what meets a target or comes near; they outlive resets of their island."""

SLOT: Final = f"{CLOCKED}slot"
"""Prefix of the slots of a population selected as a whole: the latest holder wins, but earned its place by merit."""

# Many rewards are pass/fail, so most candidates tie on one or two objectives. A corner or pair without any weight on
# the rest would keep the first of them; with a thousandth on the rest it keeps the best.
_LEAN: Final = 1e-3


@lru_cache(maxsize=256)
def trade_offs(k: int) -> FloatArray:
    """Return the lattice over ``k`` objectives: corners, the uniform weighting, then even pairs.

    Pairs are ordered by their distance on the ring of objectives, so that every objective occurs once before any occurs
    twice. If the corners do not fit, groups of objectives replace single ones.

    The shape is (D, k), D ≤ ``MAX_TRADE_OFFS``; rows are ≥ 0 and sum to 1. Read-only.
    """
    uniform = np.full((1, k), 1.0 / k)
    if k == 1:
        return _frozen(uniform)
    groups = min(k, MAX_TRADE_OFFS - 1)
    member = np.arange(k) % groups == np.arange(groups)[:, None]
    corners = member / member.sum(axis=1, keepdims=True)
    pairs = _pairs(k)[: MAX_TRADE_OFFS - groups - 1] if k > 2 else []
    middles = [(np.eye(1, k, i) + np.eye(1, k, j)) / 2.0 for i, j in pairs]
    leaning = (1.0 - _LEAN) * np.concatenate([corners, *middles]) + _LEAN * uniform
    return _frozen(np.concatenate([leaning[:groups], uniform, leaning[groups:]]))


@lru_cache(maxsize=256)
def weightings(k: int, declared: tuple[float, ...] | None) -> tuple[tuple[str, ...], FloatArray]:
    """Return the trade-off cells of a problem: the lattice, and the declared weights if there are any.

    ``declared`` are the problem's k weights, summing to 1, or None. Returns the names of the D cells, and their
    weights, shape (D, k), read-only.
    """
    lattice = trade_offs(k)
    names = tuple(f"w{i}" for i in range(len(lattice)))
    if declared is None:
        return names, lattice
    return (*names, DECLARED), _frozen(np.concatenate([lattice, np.array([declared])]))


def is_clocked(cell: str) -> bool:
    return cell.startswith(CLOCKED)


def improves(cell: str) -> bool:
    """Return True if entering a cell improves the archive: being the latest does not."""
    return not is_clocked(cell) or cell.startswith(SLOT)


def weigh(points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return wᵀr, shape (n, m), for points of normalised rewards, shape (n, k), and weightings, shape (m, k).

    Each value is bitwise independent of the other rows (unlike in a matrix product), so that equal rewards never
    displace each other.
    """
    weighed: FloatArray = (points[:, None, :] * weights[None, :, :]).sum(axis=2)
    return weighed


def _pairs(k: int) -> list[tuple[int, int]]:
    # At half the ring's length each pair would occur twice.
    return [
        (i, (i + distance) % k) for distance in range(1, k // 2 + 1) for i in range(k // 2 if 2 * distance == k else k)
    ]


def _frozen(weights: FloatArray) -> FloatArray:
    weights.setflags(write=False)
    return weights
