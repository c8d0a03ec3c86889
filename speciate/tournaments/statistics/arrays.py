"""What the statistics are given, checked once: finite numbers of the expected shape, and levels between 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speciate.domain.errors import InvalidInputError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def finite(values: ArrayLike, name: str, dimensions: int | None = None) -> FloatArray:
    """Return the values as float64.

    Args:
        values: Numbers.
        name: What the caller calls them, for the message.
        dimensions: How many axes they must have; None is any number.

    Raises:
        InvalidInputError: A value is NaN or infinite, there are none, or the number of axes is another.
    """
    array = np.asarray(values, dtype=np.float64)
    shaped(array, name, dimensions)
    if not np.isfinite(array).all():
        raise InvalidInputError(
            f"{name} holds {int((~np.isfinite(array)).sum())} values that are NaN or infinite.",
            remedy="Say what a failed sample counts for (the worst value of the range) before comparing.",
        )
    return array


def flags(values: ArrayLike, name: str, dimensions: int | None = None) -> BoolArray:
    """Return the values as booleans.

    Raises:
        InvalidInputError: A value is neither true nor false (nor 1 nor 0), there are none, or the axes are others.
    """
    array = np.asarray(values)
    shaped(array, name, dimensions)
    if not np.isin(array, (0, 1)).all():
        raise InvalidInputError(f"{name} holds something else than true and false.", remedy="Compare with the target.")
    return array.astype(np.bool_)


def shaped(array: NDArray[Any], name: str, dimensions: int | None) -> None:
    """Refuse an empty array, or one with another number of axes.

    Raises:
        InvalidInputError: It is one of these.
    """
    if dimensions is not None and array.ndim != dimensions:
        raise InvalidInputError(
            f"{name} has shape {array.shape}.", remedy=f"Give an array with {dimensions} axes, as documented."
        )
    if array.size == 0:
        raise InvalidInputError(f"{name} is empty.", remedy="Nothing can be said of no data: run something first.")


def same_shape(a: NDArray[Any], b: NDArray[Any], names: str) -> None:
    """Refuse two arrays that cannot be paired.

    Raises:
        InvalidInputError: Their shapes differ.
    """
    if a.shape != b.shape:
        raise InvalidInputError(
            f"{names} have shapes {a.shape} and {b.shape}.", remedy="Pair the same problems and seeds, in one order."
        )


def open_unit(value: float, name: str) -> None:
    """Refuse a level or chance that is not strictly between 0 and 1.

    Raises:
        InvalidInputError: It is not.
    """
    if not 0.0 < value < 1.0:
        raise InvalidInputError(f"{name} is {value}.", remedy="Choose a number strictly between 0 and 1, such as 0.05.")


def at_least(value: int, least: int, name: str) -> None:
    """Refuse a count that is too small.

    Raises:
        InvalidInputError: It is.
    """
    if value < least:
        raise InvalidInputError(f"{name} is {value}.", remedy=f"Give at least {least}.")
