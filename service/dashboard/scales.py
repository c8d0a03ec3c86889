"""Ranges and scales of chart axes: the bulk of the data sets them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from speciate.domain.arrays import FloatArray

_DECILES: Final = (0.1, 0.9)
_REACH: Final = 1.5
"""Distance from the deciles, in units of the distance between them, at which a value is an outlier."""

_FEW: Final = 5
"""Distinct values up to which none is an outlier."""

_OFFERED: Final = 10.0
"""Ratio of the ends of positive data above which a logarithmic axis is offered."""

_AUTOMATIC: Final = 10**1.6
"""Ratio of its deciles above which it is chosen: that of data spread evenly over two decades."""

_PAD: Final = 0.06


@dataclass(frozen=True, eq=False)
class Extent:
    values: FloatArray  # all that the axis shows, shape (n,)
    sets_range: NDArray[np.bool_]  # True for those that may set the range, shape (n,)
    includes: tuple[float, ...] = ()  # values that the range always includes

    @property
    def over_decades(self) -> bool:
        """True if positive values are spread over two decades or more."""
        low, high = np.quantile(self.values[self.sets_range], _DECILES)
        return bool(0 < low < high / _AUTOMATIC)

    def range(self, *, log: bool) -> tuple[float, float]:
        """Return the ends of the axis; on a logarithmic axis both are positive."""
        ends = bulk(self.values[self.sets_range], log=log) or ((1.0, 1.0) if log else (0.0, 0.0))
        included = [value for value in self.includes if value > 0 or not log]
        return min([*ends, *included]), max([*ends, *included])


def bulk(values: FloatArray, *, log: bool = False) -> tuple[float, float] | None:
    """Return the least and the greatest value that is not an outlier, or None without a finite value.

    Repeated values count once, so that a plateau of equal values makes no outlier of the rest. With ``log``, distances
    are measured on a logarithmic scale, and values that are not positive are ignored.
    """
    distinct = np.unique(values[np.isfinite(values) & ((values > 0) | (not log))])
    if not len(distinct):
        return None
    if len(distinct) > _FEW:
        measured = np.log10(distinct) if log else distinct
        low = np.quantile(measured, _DECILES[0], method="higher")
        high = np.quantile(measured, _DECILES[1], method="lower")
        reach = _REACH * (high - low)
        distinct = distinct[(measured >= low - reach) & (measured <= high + reach)]
    return float(distinct[0]), float(distinct[-1])


def padded(values: Sequence[float]) -> list[float]:
    """Return the ends of a linear axis that shows all values, with a margin; 0 and 1 without a value."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    pad = _PAD * ((high - low) or 1.0)
    return [low - pad, high + pad]


def scaled(
    data: Sequence[dict[str, Any]], layout: Mapping[str, Any], extents: Mapping[str, Extent]
) -> tuple[dict[str, Any], dict[str, bool], int]:
    """Return the layout with the range of every axis that has an extent, the scales, and the values beyond the axes.

    The scales are by axis that may be logarithmic; true if it is.
    """
    axes: dict[str, Any] = {}
    log: dict[str, bool] = {}
    beyond: NDArray[np.bool_] = np.zeros(1, dtype=np.bool_)
    for name in "xy":
        extent = extents.get(name)
        span = _positive_span(data, layout, name, extent)
        if span is not None and span[1] > _OFFERED * span[0]:
            log[name] = extent is not None and extent.over_decades
        is_log = log.get(name, False)
        more: dict[str, Any] = {"type": "log"} if is_log else {}
        if extent is not None:
            low, high = extent.range(log=is_log)
            ends = np.log10([low, high]) if is_log else np.array([low, high])
            more["range"] = padded(ends.tolist())
            beyond = beyond | (extent.values < low) | (extent.values > high)
        axes[f"{name}axis"] = {**layout.get(f"{name}axis", {}), **more}
    return {**layout, **axes}, log, int(beyond.sum())


def _positive_span(
    data: Sequence[dict[str, Any]], layout: Mapping[str, Any], name: str, extent: Extent | None
) -> tuple[float, float] | None:
    """Return the ends of the values of an axis, or None if it cannot be logarithmic."""
    axis = layout.get(f"{name}axis", {})
    if "type" in axis or "range" in axis or any(trace["type"] != "scatter" for trace in data):
        return None
    if extent is not None:
        span = bulk(extent.values[extent.sets_range])
        return span if span is not None and span[0] > 0 else None
    drawn = [np.asarray(trace[name], dtype=object) for trace in data]
    values = [value for values in drawn for value in values.tolist() if value is not None]
    if not values or not all(isinstance(value, int | float) and value > 0 for value in values):
        return None
    return float(min(values)), float(max(values))
