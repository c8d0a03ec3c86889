"""Ranges and scales of chart axes: the bulk of the data sets them, and what lies beyond is drawn at the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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

_PAD: Final = 0.03
_BEYOND: Final = {"x": ("← {}", "{} →"), "y": ("↓ {}", "↑ {}")}


@dataclass(frozen=True, eq=False)
class Extent:
    """The values along an axis.

    Attributes:
        name: Name of the axis in hover texts.
        values: All values that the axis shows, shape (n,).
        sets_range: True for values that may set the range, shape (n,).
        declared: ``(low, high)`` that the range always includes.
    """

    name: str
    values: FloatArray
    sets_range: NDArray[np.bool_]
    declared: tuple[float, float]

    @property
    def over_decades(self) -> bool:
        """True if positive values are spread over two decades or more."""
        low, high = np.quantile(self.values[self.sets_range], _DECILES)
        return bool(0 < low < high / _AUTOMATIC)

    def range(self, *, log: bool) -> tuple[float, float]:
        """Return the ends of the axis; on a logarithmic axis both are positive."""
        low, high = self.declared
        ends = bulk(self.values[self.sets_range], log=log)
        if ends is None:
            return low, high
        return min(low, ends[0]) if low > 0 or not log else ends[0], max(high, ends[1])


@dataclass(frozen=True)
class Scaled:
    """Traces and layout for the chosen scales."""

    data: Sequence[dict[str, Any]]
    layout: dict[str, Any]
    log: dict[str, bool]
    note: str = ""


def bulk(values: FloatArray, *, log: bool = False) -> tuple[float, float] | None:
    """Return the least and the greatest value that is not an outlier, or None without a finite value.

    Repeated values count once, so that a plateau of equal values makes no outlier of the rest.

    Args:
        values: Shape (n,); infinite ones and NaN are ignored.
        log: True to measure distances on a logarithmic scale and to ignore values that are not positive.
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


def scaled(
    data: Sequence[dict[str, Any]], layout: dict[str, Any], extents: Mapping[str, Extent], log: str | None
) -> Scaled:
    """Choose linear or logarithmic axes, and set the range of every axis that has an extent."""
    chart = Scaled(data, layout, {})
    beyond = np.zeros(0, dtype=np.bool_)
    for name in "xy":
        extent = extents.get(name)
        span = _positive_span(data, layout, name, extent)
        if span is not None and span[1] > _OFFERED * span[0]:
            chart.log[name] = (extent is not None and extent.over_decades) if log is None else name in log
        is_log = chart.log.get(name, False)
        if is_log:
            chart = _with_axis(chart, name, type="log")
        if extent is not None:
            chart, outside = _clipped(chart, name, extent, log=is_log)
            beyond = outside | beyond if len(beyond) else outside
    count = int(beyond.sum())
    note = f" {count:,} beyond the {'axis is' if count == 1 else 'axes are'} drawn at the edge." if count else ""
    return replace(chart, note=note)


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


def _with_axis(chart: Scaled, name: str, **more: Any) -> Scaled:
    key = f"{name}axis"
    return replace(chart, layout={**chart.layout, key: {**chart.layout.get(key, {}), **more}})


def _clipped(chart: Scaled, name: str, extent: Extent, *, log: bool) -> tuple[Scaled, NDArray[np.bool_]]:
    """Return the chart with the axis set and outliers moved to its ends, and which values these are, shape (n,)."""
    low, high = extent.range(log=log)
    ends = np.log10([low, high]) if log else np.array([low, high])
    pad = _PAD * ((ends[1] - ends[0]) or 1.0)
    chart = _with_axis(chart, name, range=[float(ends[0] - pad), float(ends[1] + pad)])
    data = [_clip(trace, name, extent.name, low, high) for trace in chart.data]
    below, above = extent.values < low, extent.values > high
    marks = [_edge_mark(name, int(outside.sum()), end) for end, outside in enumerate((below, above)) if outside.any()]
    layout = {**chart.layout, "annotations": [*chart.layout.get("annotations", ()), *marks]}
    return replace(chart, data=data, layout=layout), below | above


def _edge_mark(name: str, count: int, end: int) -> dict[str, Any]:
    """Return the text at the lower (0) or upper (1) end of an axis that counts the values beyond it."""
    if name == "x":
        place: dict[str, Any] = {"x": end, "xanchor": ("left", "right")[end], "y": 0, "yanchor": "bottom"}
    else:
        place = {"y": end, "yanchor": ("bottom", "top")[end], "x": 0.5, "xanchor": "center"}
    text = _BEYOND[name][end].format(f"{count:,} beyond")
    look = {"showarrow": False, "bgcolor": "--surface", "opacity": 0.9, "font": {"size": 11}}
    return {"text": text, "xref": "paper", "yref": "paper", **place, **look}


def _clip(trace: dict[str, Any], name: str, label: str, low: float, high: float) -> dict[str, Any]:
    values = np.asarray(trace[name], dtype=np.float64)
    outside = (values < low) | (values > high)
    if not outside.any():
        return trace
    texts = trace.get("text") or [""] * len(values)
    texts = [
        f"{text}<br>beyond the axis: {label} {value:.6g}" if out else text
        for text, value, out in zip(texts, values.tolist(), outside.tolist(), strict=True)
    ]
    template = trace["hovertemplate"]
    if "%{text}" not in template:
        template = template.replace("<extra>", "%{text}<extra>")
    return {**trace, name: np.clip(values, low, high), "text": texts, "hovertemplate": template}
