"""Trade-off cells: a fixed lattice of weightings of the objectives, one elite for each.

An archive of vectors keeps the best candidate under every weighting of a small lattice, so that a specialist survives
although its sum is poor. The lattice depends on the number of objectives alone: the same for every island, run and
machine, and never larger than ``MAX_TRADE_OFFS``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from speciate.domain.reward import FloatArray

MAX_TRADE_OFFS: Final = 24
"""Most weightings in a lattice, however many objectives there are."""

DECLARED: Final = "declared"
"""Name of the cell that ranks by the problem's own weights, where it declares some."""

CLOCKED: Final = "@"
"""First letter of cells that rank by time: they hold what came last, and not what is best."""

SLOT: Final = f"{CLOCKED}slot"
"""Beginning of the cells of a population that is chosen as a whole: the newest holder of a slot, but by its merit."""

# Many rewards are passed or failed, and most candidates are equal on one or two of them. A corner or a pair that looked
# at nothing else would keep whichever came first; with a thousandth on the rest, it keeps the one that is also good
# elsewhere.
_LEAN: Final = 1e-3


@lru_cache(maxsize=256)
def trade_offs(k: int) -> FloatArray:
    """Return the lattice over ``k`` objectives: corners, uniform, then even pairs.

    Pairs are taken in order of their distance on the ring of objectives, so that every objective is met before any is
    met again. Where there are more objectives than corners fit, groups of objectives take the place of corners.

    Args:
        k: Number of objectives, at least 1.

    Returns:
        Shape (D, k), D ≤ ``MAX_TRADE_OFFS``, read-only; rows are ≥ 0 and sum to 1.
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
    """Return the trade-off cells of a problem: the lattice, and the declared weights where there are some.

    Args:
        k: Number of objectives.
        declared: The problem's weights, k of them summing to 1, or None.

    Returns:
        Names of the D cells, and their weights, shape (D, k), read-only.
    """
    lattice = trade_offs(k)
    names = tuple(f"w{i}" for i in range(len(lattice)))
    if declared is None:
        return names, lattice
    return (*names, DECLARED), _frozen(np.concatenate([lattice, np.array([declared])]))


def is_clocked(cell: str) -> bool:
    """Tell whether a cell holds what came last."""
    return cell.startswith(CLOCKED)


def improves(cell: str) -> bool:
    """Tell whether entering a cell makes the archive better: coming last alone does not."""
    return not is_clocked(cell) or cell.startswith(SLOT)


def weigh(points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return every wᵀr.

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        weights: Weightings, shape (m, k).

    Returns:
        Shape (n, m). A vector's value does not depend on its neighbours, not even in the last bit (as it would in a
        matrix product): equal rewards never displace each other.
    """
    weighed: FloatArray = (points[:, None, :] * weights[None, :, :]).sum(axis=2)
    return weighed


def _pairs(k: int) -> list[tuple[int, int]]:
    # At half the ring's length, each pair would come twice.
    return [
        (i, (i + distance) % k) for distance in range(1, k // 2 + 1) for i in range(k // 2 if 2 * distance == k else k)
    ]


def _frozen(weights: FloatArray) -> FloatArray:
    weights.setflags(write=False)
    return weights
