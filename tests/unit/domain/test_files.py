"""Sets of files convert to one text and back without loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.domain.files import MAX_FILES, FilesError, files_of, sections_of, text_of, text_of_sections

LOOKS = "# === file: a.py ==="
LINES = st.lists(
    st.sampled_from(
        [LOOKS, "# \\=== file: a.py ===", "# \\\\=== file: ", "# === file: ", "", " ", "x = 1", "é\r", "\\"]
    )
    | st.text(max_size=8).filter(lambda text: "\n" not in text),
    max_size=6,
).map(lambda lines: "".join(f"{line}\n" for line in lines))
NAMES = st.sampled_from(["candidate.py", "a.py", "b/c.py", "b/d-e.txt", "_/0.h", "Makefile"])


@given(st.dictionaries(NAMES, LINES, min_size=1))
def test_conversion_is_lossless(files: dict[str, str]) -> None:
    text = text_of(files)
    assert files_of(text) == files
    assert list(files_of(text)) == list(files)
    assert text_of(files_of(text)) == text
    assert text_of_sections(sections_of(text)) == text


def test_text_format() -> None:
    text = text_of({"candidate.py": "import a", "a.py": f"x = '''\n{LOOKS}\n'''\n", "empty.py": ""})
    assert text == (
        "# === file: candidate.py ===\nimport a\n"
        "# === file: a.py ===\nx = '''\n# \\=== file: a.py ===\n'''\n"
        "# === file: empty.py ===\n"
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "expected a heading"),
        ("\nx = 1\n", 2, "expected a heading"),
        (f"x = 1\n{LOOKS}\n", 1, "expected a heading"),
        (f"{LOOKS}\nx\n{LOOKS}\n", 3, "is repeated"),
        ("# === file: ../a.py ===\n", 1, "is not a file name"),
        ("# === file: /etc/passwd ===\n", 1, "is not a file name"),
        ("# === file: a//b ===\n", 1, "is not a file name"),
        ("# === file: .hidden ===\n", 1, "is not a file name"),
        ("# === file: a b ===\n", 1, "is not a file name"),
        (f"# === file: {'a' * 300} ===\n", 1, "is not a file name"),
        (f"# === file: {'/'.join('abcdefghi')} ===\n", 1, "is not a file name"),
        ("# === file:  ===\n", 1, "is not a file name"),
        ("".join(f"# === file: {i} ===\n" for i in range(MAX_FILES + 1)), MAX_FILES + 1, "more than 64 files"),
    ],
)
def test_invalid_texts_are_refused_with_a_line(text: str, line: int, words: str) -> None:
    with pytest.raises(FilesError) as caught:
        files_of(text)
    assert caught.value.line == line
    assert words in caught.value.message


def test_invalid_names_are_not_written() -> None:
    for files in ({}, {"../a": ""}, {"a ===\nb": ""}):
        with pytest.raises(FilesError):
            text_of(files)
