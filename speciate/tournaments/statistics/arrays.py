"""Argument checks shared by all statistics: finite numbers, expected shapes, levels between 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speciate.domain.errors import InvalidInputError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def finite(values: ArrayLike, name: str, dimensions: int | None = None) -> FloatArray:
    """Return the values as float64, after checking their number of axes; None accepts any."""
    array = np.asarray(values, dtype=np.float64)
    check_axes(array, name, dimensions)
    if not np.isfinite(array).all():
        raise InvalidInputError(
            f"{name} holds {int((~np.isfinite(array)).sum())} values that are NaN or infinite.",
            remedy="Give failed samples a finite score, such as the worst value of the range.",
        )
    return array


def flags(values: ArrayLike, name: str, dimensions: int | None = None) -> BoolArray:
    array = np.asarray(values)
    check_axes(array, name, dimensions)
    if not np.isin(array, (0, 1)).all():
        raise InvalidInputError(f"{name} holds values other than true and false.", remedy="Compare with the target.")
    return array.astype(np.bool_)


def check_axes(array: NDArray[Any], name: str, dimensions: int | None) -> None:
    if dimensions is not None and array.ndim != dimensions:
        raise InvalidInputError(
            f"{name} has shape {array.shape}.", remedy=f"Give an array with {dimensions} axes, as documented."
        )
    if array.size == 0:
        raise InvalidInputError(f"{name} is empty.", remedy="Give at least one value.")


def check_same_shape(a: NDArray[Any], b: NDArray[Any], names: str) -> None:
    if a.shape != b.shape:
        raise InvalidInputError(
            f"{names} have shapes {a.shape} and {b.shape}.", remedy="Pair the same problems and seeds, in one order."
        )


def check_open_unit(value: float, name: str) -> None:
    if not 0.0 < value < 1.0:
        raise InvalidInputError(f"{name} is {value}.", remedy="Choose a number strictly between 0 and 1, such as 0.05.")


def check_at_least(value: int, least: int, name: str) -> None:
    if value < least:
        raise InvalidInputError(f"{name} is {value}.", remedy=f"Give at least {least}.")
