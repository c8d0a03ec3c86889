"""Diffs of any programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.diffs import MAX_LINES, unified_diff


def _apply(old: str, diff: str) -> str:
    """Apply a unified diff by its line numbers, checking every line it says was there."""
    before, after = old.split("\n") if old else [], []
    position = 0
    for line in diff.split("\n")[2:] if diff else []:
        if line.startswith("@@"):
            start, length = (int(part) for part in line.split()[1][1:].split(","))
            first = start - 1 if length else start
            after += before[position:first]
            position = first
        elif line[0] == "+":
            after.append(line[1:])
        else:
            assert before[position] == line[1:]
            after += [line[1:]] if line[0] == " " else []
            position += 1
    return "\n".join(after + before[position:])


_programs = st.lists(st.sampled_from(["a", "b", "", "@@", "-x", "+y", "\u2028", "\x0c"]), max_size=30).map("\n".join)


@given(_programs, _programs)
def test_diff_transforms_old_into_new(old: str, new: str) -> None:
    diff = unified_diff(old, new, before="old", after="new")
    assert diff.minimal
    assert _apply(old, diff.text) == new


@pytest.mark.parametrize("count", [MAX_LINES, MAX_LINES + 10, 300_000])
def test_work_for_large_programs_is_bounded(count: int) -> None:
    head, tail = [f"h{i}" for i in range(50)], [f"t{i}" for i in range(50)]
    old = "\n".join(head + [str(i % 97) for i in range(count)] + tail)
    new = "\n".join([*head, *(str((i + 1) % 89) for i in range(count)), *tail])
    diff = unified_diff(old, new, before="old", after="new")
    assert diff.minimal == (count <= MAX_LINES)
    assert _apply(old, diff.text) == new


def test_small_change_of_a_large_program_has_a_small_diff() -> None:
    lines = [str(i % 7) for i in range(400_000)]
    diff = unified_diff("\n".join(lines), "\n".join([*lines[:1000], "new", *lines[1000:]]), before="old", after="new")
    assert diff.minimal
    assert len(diff.text.split("\n")) < 15


def test_patch_applies_the_diff(tmp_path: Path) -> None:
    old, new = "a\nb\nc\nd\ne\nf\ng\nh\n", "a\nB\nc\nd\ne\nf\ng\nh\ni\n"
    (tmp_path / "file").write_text(old)
    diff = unified_diff(old, new, before="file", after="file")
    try:
        subprocess.run(["patch", "--silent", "file"], input=diff.text, cwd=tmp_path, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("there is no patch on this machine")
    assert (tmp_path / "file").read_text() == new


def test_equal_texts_have_an_empty_diff() -> None:
    assert unified_diff("same", "same", before="a", after="b").text == ""
