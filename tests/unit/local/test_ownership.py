"""The runs of a killed process are found once, those of a living one never."""

from __future__ import annotations

import multiprocessing
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

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


@pytest.mark.parametrize("end", [b"", b"0b9c", b"\0\0\0\n", b"\xff\n"])
def test_damaged_end_of_a_file_is_skipped(tmp_path: Path, sockets: Path, end: bytes) -> None:
    folder, run_id = tmp_path / "local", uuid4()
    folder.mkdir()
    (folder / "a").write_bytes(f"{sockets}\n{run_id}\n".encode() + end)
    (folder / "b").write_bytes(end)
    left: list[list[UUID]] = [runs for runs, _ in take_left_behind(folder)]
    assert left == [[run_id], []]
    assert [*folder.iterdir()] == []


def test_cut_off_name_of_a_folder_removes_no_other(tmp_path: Path, sockets: Path) -> None:
    folder = tmp_path / "local"
    folder.mkdir()
    (folder / "a").write_text(str(sockets))
    assert [runs for runs, _ in take_left_behind(folder)] == [[]]
    assert sockets.exists()


def _say(_: int) -> bytes:
    return subprocess.run(["echo", "x"], capture_output=True, preexec_fn=int, check=True).stdout


def test_forks_of_forks_keep_their_files(tmp_path: Path, sockets: Path) -> None:
    own = OwnRuns(tmp_path / "local", sockets)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(_say, range(3)) == [b"x\n"] * 3
    own.close()


def test_a_fork_does_not_keep_the_runs_of_a_killed_process(tmp_path: Path, sockets: Path) -> None:
    own = OwnRuns(tmp_path / "local", sockets)
    own.add(run_id := uuid4())
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    try:
        _kill(own)
        deadline = time.monotonic() + 30
        while not (left := [*take_left_behind(tmp_path / "local")]) and time.monotonic() < deadline:
            time.sleep(0.01)  # until the child runs
        assert [runs for runs, _ in left] == [[run_id]]
    finally:
        child.kill()
        child.join()
