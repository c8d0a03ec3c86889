"""Files of the kernel that the worker and supervisors read about processes."""

import os
import subprocess
from pathlib import Path

import pytest

from evaluators.contained.proc import ProcFolder
from evaluators.tiers import scheduling


def test_a_long_list_is_read_whole(tmp_path: Path) -> None:
    """The kernel lists the children of a process in one file, which may be longer than one read."""
    listed = tmp_path / "children"
    listed.write_bytes(b"12345 " * 3000)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert ProcFolder(folder).read("children") == listed.read_bytes()
    finally:
        os.close(folder)


def test_a_process_id_that_another_process_has_is_noticed() -> None:
    child = subprocess.Popen(["sleep", "60"])
    delay = scheduling.SchedulingDelay(child.pid)
    assert not delay.replaced
    child.kill()
    child.wait()
    assert not delay.replaced  # no process has its id
    delay._pid = os.getpid()
    assert delay.replaced
    assert not scheduling.SchedulingDelay(os.getpid()).replaced


def test_an_orphan_that_is_adopted_while_children_are_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent ends after the children of the supervisor were read, and before its own are."""
    with subprocess.Popen(["sleep", "60"]) as orphan:
        own = str(os.getpid())
        readings = iter([[own], [own, str(orphan.pid)]])
        monkeypatch.setattr(scheduling._PROC, "descendants", lambda _: next(readings))
        assert scheduling.SchedulingDelay(os.getpid(), supervisor=1).others() == [orphan.pid]
        orphan.kill()
