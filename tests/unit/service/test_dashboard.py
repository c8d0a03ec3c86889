"""Caches, formatting, live parts and texts of pages."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from service.dashboard.charts import Chart, Table, respond, thinned, to_json
from service.dashboard.context import PopulationCache
from service.dashboard.formatting import duration, number
from service.dashboard.live import LivePart, LiveViews
from service.dashboard.pages import _FLUSH, _compressed, _sections, fragment, macro
from speciate.storage.candidates.arrays import CandidateArrays
from tests.dashboard.samples import antenna
from tests.unit.service.figure_samples import sample_columns, sample_request


def test_columns_are_read_incrementally() -> None:
    whole = sample_columns(30, 5)
    asked = []

    class Store:
        def arrays(self, run_id: object, dimensions: int, *, after: int = 0) -> CandidateArrays:
            asked.append(after)
            end = min(30, after + 10)
            return CandidateArrays(**{name: values[after:end] for name, values in vars(whole).items()})

        def refuted(self, run_id: object) -> tuple[tuple[int, str], ...]:
            return ()

    cache, problem = PopulationCache(Store(), NotImplemented), antenna()  # type: ignore[arg-type]
    run_id = uuid4()
    sizes = [len(cache.of(run_id, problem).columns) for _ in range(4)]
    assert (sizes, asked) == ([10, 20, 30, 30], [0, 10, 20, 30])
    assert cache.of(run_id, problem) is cache.of(run_id, problem)
    assert cache.of(run_id, problem).columns.failure == whole.failure


def test_the_first_part_of_a_page_is_sent_before_the_rest_is_rendered() -> None:
    def pieces() -> Iterator[str]:
        yield "<p>" + "first " * 400
        yield _FLUSH
        made.append("rest")
        yield "last"

    made: list[str] = []
    sections = _sections(pieces())
    first = next(sections)
    assert made == []
    packed = _compressed(first, sections)
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    assert reader.decompress(next(packed)) == first
    assert made == []
    assert reader.decompress(b"".join(packed)) == b"last"


def test_non_finite_numbers_become_null() -> None:
    assert to_json({"a": np.array([1.0, np.nan, np.inf]), "b": (1, "x", None)}) == {
        "a": [1.0, None, None],
        "b": [1, "x", None],
    }
    assert to_json([2.6359856, 2.6359857]) == [2.6359856, 2.6359857], "late improvements stay apart"
    assert thinned(10, 4) == [0, 3, 6, 9]


def test_csv_cells_that_a_spreadsheet_would_evaluate_are_quoted() -> None:
    text = Table(("name",), [("=cmd()",), ("+1",), ("@x",), (-1.5,), ("plain, quoted",)]).csv()
    assert text.splitlines() == ["name", "'=cmd()", "'+1", "'@x", "-1.5", '"plain, quoted"']
    assert Table(("a",), [("x\r=1+1",), ("-1+A1",)]).csv() == 'a\n"x\n=1+1"\n\'-1+A1\n'


def test_a_figure_that_the_browser_has_is_not_drawn_again() -> None:
    made = []

    def make() -> Chart:
        made.append(1)
        return Chart("x", "x", "x", [], {}, Table(("a", "b"), []))

    request = sample_request("GET", {"accept-encoding": "gzip"})
    first = respond(request, "key", make)
    again = respond(sample_request("GET", {"if-none-match": first.headers["etag"]}), "key", make)
    assert (first.status_code, again.status_code, len(made)) == (200, 304, 1)
    changed = respond(sample_request("GET", {"if-none-match": first.headers["etag"]}), "other key", make)
    assert json.loads(changed.body)["data"] == []


def test_a_view_is_rendered_once_for_all_viewers() -> None:
    asyncio.run(_watched())


async def _watched() -> None:
    live = LiveViews(poll_s=10.0, pause_s=0.0)
    shown = ["one"]
    rendered = []

    def render() -> LivePart:
        rendered.append(shown[0])
        return LivePart(shown[0], final=shown[0] == "last")

    run_id = uuid4()
    streams = [live.watch("key", render, run_id=run_id, seen="") for _ in range(20)]
    readers = [aiter(stream.body_iterator) for stream in streams]
    first = [await _next_part(reader) for reader in readers]
    assert {part["html"] for _, part in first} == {"one"}
    assert len(rendered) == 1
    live.wake(uuid4())  # another run
    shown[0] = "two"
    live.wake(run_id)
    assert {(await _next_part(reader))[1]["html"] for reader in readers} == {"two"}
    assert rendered == ["one", "two"]
    # A viewer that reconnects with the current frame gets the next one only.
    late = aiter(live.watch("key", render, run_id=run_id, seen=first[0][0]).body_iterator)
    assert (await _next_part(late))[1]["html"] == "two"
    shown[0] = "last"
    live.wake(run_id)
    for reader in readers:
        assert (await _next_part(reader))[1]["html"] == "last"
        assert b"event: end" in await anext(reader)
    live.close_streams()


async def _next_part(reader: AsyncIterator[Any]) -> tuple[str, dict[str, Any]]:
    while True:
        frame = (await anext(reader)).decode()
        if "event: part" in frame:
            lines = dict(line.split(": ", 1) for line in frame.strip().split("\n"))
            return lines["id"], json.loads(lines["data"])


@pytest.mark.parametrize(
    ("kind", "data", "words", "candidates"),
    [
        ("target.claimed", {}, "sorts claimed, to be confirmed by a second evaluation: candidate", (2,)),
        ("target.confirmed", {"evaluations": 1}, "sorts confirmed after 1 evaluation: candidate", (2,)),
        ("target.refuted", {"detail": "n was 3"}, "sorts refuted (n was 3): candidate", (2,)),
        (
            "batch.evaluated",
            {"candidates": [{"failure": None, "repetition": False}], "evaluations": 1, "archive": [[0, "w0", 2]]},
            "1 candidate, 1 evaluation in total, 1 cell of the archive won by",
            (2,),
        ),
        ("batch.proposed", {"proposals": 1200, "rollouts": 1}, "1 200 candidates from 1 completion", ()),
    ],
)
def test_events_are_described(kind: str, data: dict[str, Any], words: str, candidates: tuple[int, ...]) -> None:
    shown = macro("event", kind, {"target": "sorts", "candidate": 2, **data}, "/runs/1")
    links = "".join(f' <a href="/runs/1/candidates/{number}">{number}</a>' for number in candidates)
    assert shown.replace("\n", "") == words + links


def test_reached_targets_are_counted() -> None:
    shown = [macro("reached", {"unlocked": None, "reached": names}) for names in ([], ["low"], ["low", "high"])]
    assert shown == ["–", "1 target", "2 targets"]


def test_evaluations_since_the_archive_improved_are_counted() -> None:
    runs = ({"seeds": 1, "spent": {"evaluations": 9}, "since_improvement": count} for count in (1, 2, 8))
    shown = [macro("since_improvement", run, "evaluation") for run in runs]
    assert shown == ["1 <small>evaluation</small>", "2 <small>evaluations</small>", "none yet"]


def test_numbers_and_durations_are_formatted() -> None:
    assert [number(v) for v in (None, 3.0, 9999.7, 12345, -0.25, 1e-9, float("nan"))] == [
        "–",
        "3",
        "9\u202f999.7",
        "12\u202f345",
        "−0.25",
        "1e−09",
        "–",
    ]
    assert [duration(s) for s in (0.004, 2.0, 75, 3600 * 5)] == [
        "4\u202fms",
        "2.0\u202fs",
        "1\u202fmin 15\u202fs",
        "5\u202fh",
    ]


def test_empty_lists_say_how_to_start() -> None:
    nothing: dict[str, Any] = {
        "counts": {},
        "attention": (),
        "declared": (),
        "paused": (),
        "running": (),
        "latest": (),
        "unlocks": (),
        "tournaments": (),
        "workers": (),
    }
    begin = "speciate run PROBLEM --policy POLICY --budget"  # a run without a budget is refused
    assert begin in fragment("activity_live.html", **nothing)
    fresh, sought = (fragment("runs_live.html", runs=(), filtered=given, all="") for given in (False, True))
    assert begin in fresh
    assert ("No runs match the filter" in fresh, "No runs match the filter" in sought) == (False, True)


def test_characters_that_reverse_the_text_are_shown() -> None:
    assert macro("count", 2, "\u202e# txet\u2066 ok \u05d0") == "2 [U+202E]# txet[U+2066] ok \u05d0s"
    assert "[U+202E]" in macro("count", 1, '<textarea><input value="\u202e')
    # A form sends back what it shows.
    for field in ('<input name="a" value="&lt;\u202e">', "<textarea>\n&lt;\u202e\u05d0"):
        (sent,) = _sections(iter([f"{field}</textarea>\u202e"]))
        assert sent.decode() == f"{field}</textarea>[U+202E]"
    assert b"".join(_sections(iter(["a\u202e", "b"]))) == b"a[U+202E]b"
