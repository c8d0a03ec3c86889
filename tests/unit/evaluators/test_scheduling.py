"""Files of the kernel that the worker and supervisors read about processes."""

import os
import subprocess
from pathlib import Path

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
