"""Control groups: which one is ours to use, and what is asked of the kernel. A real delegated one is rarely at hand."""

import os
from pathlib import Path

import pytest

from evaluators.tiers.cgroup import ControlGroup, delegated
from evaluators.tiers.sandbox import ProcessRole, ProcessSpec
from speciate.domain.limits import Limits


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """A folder as systemd leaves it for a service with Delegate= and DelegateSubgroup=main."""
    unit = tmp_path / "system.slice" / "speciate.service"
    (unit / "main").mkdir(parents=True)
    (unit / "cgroup.subtree_control").write_text("")
    (tmp_path / "membership").write_text("1:name=systemd:/elsewhere\n0::/system.slice/speciate.service/main\n")
    return unit


def mark(group: Path) -> None:
    try:
        os.setxattr(group, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"the temporary folder has no extended attributes: {error}")


def test_a_group_that_nobody_delegated_is_left_alone(tmp_path, unit):
    assert delegated(tmp_path, tmp_path / "membership") is None
    assert (unit / "cgroup.subtree_control").read_text() == ""


def test_a_delegated_group_is_found_and_asked_for_its_controllers(tmp_path, unit):
    mark(unit)
    assert delegated(tmp_path, tmp_path / "membership") == unit
    assert (unit / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_our_own_group_is_no_place_for_limits(tmp_path, unit):
    mark(unit / "main")
    (unit / "main" / "cgroup.subtree_control").write_text("")
    assert delegated(tmp_path, tmp_path / "membership") is None


def test_without_the_unified_hierarchy_there_is_none(tmp_path):
    (tmp_path / "membership").write_text("4:memory:/x\n")
    assert delegated(tmp_path, tmp_path / "membership") is None


def test_a_group_has_the_limits_of_the_problem(tmp_path, monkeypatch):
    made: list[Path] = []
    make = Path.mkdir

    def mkdir(path: Path, *args: object, **kwargs: object) -> None:
        make(path)
        for name in ("cgroup.procs", "memory.max", "pids.max"):
            (path / name).touch()  # as the kernel does
        made.append(path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    limits = Limits(memory_bytes=100 << 20, tmp_bytes=10 << 20, threads=5)
    group = ControlGroup(tmp_path, ProcessSpec(ProcessRole.CANDIDATE, limits))
    os.write(group.members, b"0")
    os.close(group.members)
    (path,) = made
    assert int((path / "memory.max").read_text()) == (100 + 10 + 128) << 20
    assert int((path / "pids.max").read_text()) == 5 + 1
    assert (path / "cgroup.procs").read_text() == "0"
    for entry in path.iterdir():  # in the kernel's file system they are not in the way
        entry.unlink()
    group.remove()
    assert not path.exists()


def test_the_processor_time_of_a_group(tmp_path: Path) -> None:
    group = ControlGroup.__new__(ControlGroup)
    group._path = tmp_path
    assert group.cpu_s() == 0.0
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    assert group.cpu_s() == 2.5
