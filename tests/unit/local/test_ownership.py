"""The runs of a killed process are found once, those of a living one never."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from speciate.local.ownership import OwnRuns, take_left_behind


@pytest.fixture
def sockets(tmp_path: Path) -> Path:
    folder = tmp_path / "sockets"
    folder.mkdir()
    return folder


def _kill(own: OwnRuns) -> None:
    own.ended = False
    own.close()


def test_runs_of_a_killed_process_are_found_once(tmp_path: Path, sockets: Path) -> None:
    own, (first, second) = OwnRuns(tmp_path / "local", sockets), (uuid4(), uuid4())
    for run_id in (first, second, first):
        own.add(run_id)
    _kill(own)
    (left,) = take_left_behind(tmp_path / "local")
    assert left[0] == [first, second]
    assert abs((datetime.now(UTC) - left[1]).total_seconds()) < 60
    assert not sockets.exists()
    assert [*take_left_behind(tmp_path / "local")] == []


def test_runs_of_a_living_or_ended_process_are_not_found(tmp_path: Path, sockets: Path) -> None:
    own = OwnRuns(tmp_path / "local", sockets)
    own.add(uuid4())
    assert [*take_left_behind(tmp_path / "local")] == []
    assert sockets.exists()
    own.close()
    assert [*take_left_behind(tmp_path / "local")] == []


def test_what_its_taker_could_not_handle_is_found_again(tmp_path: Path, sockets: Path) -> None:
    own = OwnRuns(tmp_path / "local", sockets)
    own.add(run_id := uuid4())
    _kill(own)
    taking = take_left_behind(tmp_path / "local")
    next(taking)
    with pytest.raises(RuntimeError):
        taking.throw(RuntimeError("PostgreSQL does not respond"))
    (left,) = take_left_behind(tmp_path / "local")
    assert left[0] == [run_id]
