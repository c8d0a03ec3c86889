"""Temporary folders of killed processes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evaluators.contained.unsafe import remove
from evaluators.local_folders import make_temporary_folder, temporary_folder
from evaluators.tiers.folders import ProblemFolders
from speciate.domain.errors import EvaluatorUnavailableError


def test_folders_of_killed_processes_are_removed_and_no_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make = "from evaluators.local_folders import make_temporary_folder as make; print(make('canary')); {end}"
    left = Path(_printed(make.format(end="import os; os.kill(os.getpid(), 9)"), tmp_path))
    (left / "secret").write_text("x")
    foreign = tmp_path / "speciate-canary-someone"
    foreign.mkdir()
    other = make_temporary_folder("files")
    with temporary_folder("canary") as ours, temporary_folder("canary") as second:
        assert str(os.getpid()) in ours.name
        assert {*tmp_path.iterdir()} == {foreign, other, ours, second}
    assert {*tmp_path.iterdir()} == {foreign, other}


def test_the_last_process_of_a_pool_removes_the_files_of_killed_ones_without_files_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = (
        "import os; from evaluators.tiers.folders import ProblemFolders\n"
        "print(ProblemFolders().opened({'maze.json': '{}'}, once=False).__enter__()); os.kill(os.getpid(), 9)"
    )
    assert Path(_printed(program, tmp_path), "data", "maze.json").exists()
    ProblemFolders().leave()
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_is_forgotten_once_there_is_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders, files = ProblemFolders(), {"below/maze.json": "x" * 100_000}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # Python ignores the signal and sees an error
    try:
        with pytest.raises(EvaluatorUnavailableError, match="cannot be written"), folders.opened(files, once=False):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with folders.opened(files, once=False) as folder:
        assert folder is not None
        assert Path(folder, "data/below/maze.json").stat().st_size == 100_000
    folders.close()


def _printed(program: str, folder: Path) -> str:
    ended = subprocess.run(
        [sys.executable, "-u", "-c", program],
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        check=False,
        text=True,
    )
    assert ended.returncode == -9, ended.stderr
    return ended.stdout.strip()


def test_a_folder_too_deep_to_be_removed_stops_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f"speciate-image-{ended.pid}-x"
    left.mkdir()
    monkeypatch.chdir(left)
    for _ in range(1500):
        os.mkdir("d")  # noqa: PTH102 - the whole path is too long
        os.chdir("d")
    os.chdir(tmp_path)
    assert make_temporary_folder("image").exists()
    remove(str(left))
    assert not left.exists()


def test_the_folder_of_files_is_held_against_programs_that_tidy_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders = ProblemFolders()
    tidies = f"from fcntl import *; import os; flock(os.open({str(folders.root)!r}, 0), LOCK_EX | LOCK_NB)"
    assert b"BlockingIOError" in subprocess.run([sys.executable, "-c", tidies], capture_output=True, check=False).stderr
    folders.close()
    assert not [*tmp_path.iterdir()]


def test_large_files_go_with_their_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders = ProblemFolders()
    for files, stays in (({"a.txt": "x"}, True), ({"a.txt": "x" * (2 << 20)}, False)):
        with folders.opened(files, once=False) as folder:
            assert folder is not None
            assert (folder / "data" / "a.txt").is_file()
        assert folder.exists() is stays
    folders.close()
