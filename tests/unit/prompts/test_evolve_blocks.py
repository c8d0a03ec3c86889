from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.prompts.evolve_blocks import (
    Block,
    MarkerError,
    contents_of,
    find_blocks,
    has_numbers,
    has_stray_marker,
    lines_of,
    outside_of,
    with_contents,
    without_markers,
)

START, END = "# EVOLVE-BLOCK-START", "# EVOLVE-BLOCK-END"


def test_blocks_are_found_by_the_lines_of_their_markers() -> None:
    text = f"import math\n{START}\nx = 1\n{END}\n\n    {START} (second)\ny = 2\n    {END}"
    blocks = find_blocks(text)
    assert blocks == (Block(2, 4), Block(6, 8))
    assert contents_of(text, blocks) == ["x = 1\n", "y = 2\n"]
    assert outside_of(text, blocks) == ["import math\n", "\n", ""]
    assert with_contents(text, blocks, ["x = 1\n", "y = 2\n"]) == text


COMMENTS = """\
# {}|## {}|// {}|/// {}|/* {} */| * {}|-- {}|--[[ {} ]]
; {}|;;; {}|% {}|%% {}|! {}|!! {}|<!-- {} -->|(* {} *)|{{- {} -}}
.. {}|\\ {}|:: {}|REM {}|@rem {}|C {}|' {}|" {}|{}|\t{}  |# ===== {} =====|// >>> {}|{{# {} #}}|#{}"""


@pytest.mark.parametrize("comment", COMMENTS.replace("\n", "|").split("|"))
def test_markers_are_comments_of_any_language(comment: str) -> None:
    start, end = (comment.format(f"EVOLVE-BLOCK-{word}") for word in ("START", "END"))
    text = f"a\n  {start}\r\nb\n{end}\n"
    assert find_blocks(text) == (Block(2, 4),)
    assert without_markers(text) == "a\nb\n"
    assert not has_stray_marker(text)


@pytest.mark.parametrize(
    "line",
    [
        'MARK = "EVOLVE-BLOCK-START"',
        '"EVOLVE-BLOCK-START",',
        "between EVOLVE-BLOCK-START and -END",
        "x EVOLVE-BLOCK-START",
    ],
)
def test_a_marker_that_is_no_comment_is_noticed_and_kept(line: str) -> None:
    assert find_blocks(line) == ()
    assert without_markers(line) == line
    assert has_stray_marker(line)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (f"{START}\n{START}\n{END}\n{END}", 2, "line 1 opened"),
        (f"x = 1\n{END}", 2, "without an EVOLVE-BLOCK-START"),
        (f"x = 1\n{START}\nx = 2", 2, "without an EVOLVE-BLOCK-END"),
        (f"{START} {END}", 1, "two EVOLVE-BLOCK markers"),
        (f"x = 1  {START}\n{END}", 1, "shares the line with code"),
        (f"{START}\nx = 1\n{END}\n{END}\n", 4, "without an EVOLVE-BLOCK-START"),
        ("/* EVOLVE-BLOCK-START */ int x;", 1, "shares the line with code"),
        ("print *, 1 ! EVOLVE-BLOCK-START", 1, "shares the line with code"),
    ],
)
def test_broken_markers_name_their_line(text: str, line: int, says: str) -> None:
    with pytest.raises(MarkerError, match=says) as caught:
        find_blocks(text)
    assert caught.value.line == line
    assert f"line {line}" in str(caught.value)


def test_numbers_are_looked_for_inside_the_blocks() -> None:
    block = "# EVOLVE-BLOCK-START\n{}\n# EVOLVE-BLOCK-END\n"
    assert has_numbers("a = -2.\n")
    assert has_numbers(block.format("a = [7]"))
    assert not has_numbers("a = x1.real\n")
    assert not has_numbers("N = 26\n" + block.format("a = x1"))


def test_a_mention_in_prose_is_not_a_marker() -> None:
    assert (
        find_blocks('"""Edit between EVOLVE-BLOCK-START and EVOLVE-BLOCK-END."""\n# Only inside EVOLVE-BLOCK-START\n')
        == ()
    )


@given(st.text(alphabet="ab \n\r\x0c\u2028", max_size=40))
def test_lines_join_to_the_text_and_end_like_the_tokenizers(text: str) -> None:
    lines = lines_of(text)
    assert "".join(lines) == text
    assert all(line.rstrip("\r\n") == line.rstrip("\r\n").replace("\n", "").replace("\r", "") for line in lines)


@given(st.lists(st.sampled_from([START, END, "x = 1", "", f"y = 2 {START}"]), max_size=8))
def test_any_arrangement_is_parsed_or_refused(lines: list[str]) -> None:
    text = "\n".join(lines)
    with contextlib.suppress(MarkerError):
        blocks = find_blocks(text)
        assert with_contents(text, blocks, contents_of(text, blocks)) == text
