"""Hundreds of rewards, such as test cases: which are solved, by how many, and which by nobody?"""

from __future__ import annotations

from typing import Any

import numpy as np

from service.dashboard.charts import Chart, Table, axis, hatched, hover
from service.dashboard.figures.population import Population
from service.dashboard.figures.progress import solved_of, uncounted


def strip(of: Population) -> Chart:
    """Return every reward as a bar, easiest first: the share of candidates that solve it."""
    names = [objective.name for objective in of.problem.space.selected]
    scored = of.columns.scored
    solved = solved_of(of)[scored]
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, str, int, float]] = []
    if len(solved):
        counts = solved.sum(axis=0)
        best = solved[np.argmax(solved.sum(axis=1))]
        order = np.argsort(-counts, kind="stable").tolist()
        rows = [
            (
                names[j],
                "best candidate" if best[j] else "others" if counts[j] else "nobody",
                int(counts[j]),
                float(counts[j] / len(solved)),
            )
            for j in order
        ]
        groups = (
            ("solved by the best candidate", "best candidate", "--good", ""),
            ("solved by others alone", "others", "--warn", "/"),
            ("solved by nobody", "nobody", "--bad", "x"),
        )
        for label, kind, colour, pattern in groups:
            at = [i for i, row in enumerate(rows) if row[1] == kind]
            if at:
                data.append(
                    {
                        "type": "bar",
                        "name": f"{label} ({len(at)})",
                        "x": at,
                        # What nobody solves has no height of its own: it is drawn as a full, pale bar.
                        "y": [rows[i][3] if rows[i][2] else 1.0 for i in at],
                        "text": [rows[i][0] for i in at],
                        "textposition": "none",
                        "customdata": [rows[i][3] for i in at],
                        "hovertemplate": hover("%{text}", "solved by %{customdata:.1%} of candidates", label),
                        "marker": {
                            "color": colour,
                            "opacity": 1.0 if kind != "nobody" else 0.25,
                            "pattern": hatched(pattern, 4),
                        },
                    }
                )
    layout = {
        "bargap": 0.05,
        "barmode": "overlay",
        "xaxis": axis("rewards, easiest first", showticklabels=False),
        "yaxis": axis("share of candidates", tickformat=".0%", range=[0, 1]),
    }
    note = f"{len(names)} rewards, sorted by how many candidates bring them to the better end of their range."
    note += uncounted(of)
    table = Table(("reward", "solved by", "candidates", "share"), rows)
    return Chart("strip", "Solved and unsolved rewards", note, data, layout, table, height=18)
