"""Files of the kernel that the broker and supervisors read about processes."""

from pathlib import Path

from evaluators.contained import meter
from evaluators.tiers import scheduling


def test_a_long_list_is_read_whole(tmp_path: Path) -> None:
    """The kernel lists the children of a process in one file, which may be longer than one read."""
    listed = tmp_path / "children"
    listed.write_bytes(b"12345 " * 3000)
    assert scheduling._read(str(listed)) == listed.read_bytes()
    assert meter.Meter()._read(str(listed)) == listed.read_bytes()
