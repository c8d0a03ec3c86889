"""Routes that send a figure as Plotly JSON and its data as CSV."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request, Response

from service.dashboard.charts import Chart, download, respond


@dataclass(frozen=True)
class Figure:
    """A chart that is drawn on demand."""

    key: Hashable  # changes with the data
    draw: Callable[[], Chart]
    file: str  # name of the download without extension


def add_figure_routes(router: APIRouter, path: str, find: Callable[..., Figure]) -> None:
    """Add ``path``.json and ``path``.csv; ``find`` is a dependency that takes the parameters of both."""

    @router.get(f"{path}.json")
    def get_figure(request: Request, figure: Figure = Depends(find)) -> Response:
        return respond(request, figure.key, figure.draw)

    @router.get(f"{path}.csv")
    def get_data(figure: Figure = Depends(find)) -> Response:
        return download(figure.draw().table, figure.file)
