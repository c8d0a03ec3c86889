"""Programs as HTML: nothing of a text is lost, nothing of it becomes markup, and long or slow texts stay plain."""

from __future__ import annotations

import html
import re
import time

import pytest

from service.dashboard import highlighting
from service.dashboard.highlighting import MAX_CHARACTERS, highlight
from speciate.domain.language import Language
from speciate.domain.problem import Problem, ProblemKind
from tests.dashboard.samples import HOSTILE, single

PROGRAM = '"""Two\nlines."""\n@cache\ndef solve(n):  # why\n    return len("a<b") + 1.5\n'


def _text(markup: str) -> str:
    assert set(re.findall("<[^>]*>", markup)) <= {"</span>", *(f'<span class="{name}">' for name in "ckbnfs")}
    return html.unescape(re.sub("<[^>]*>", "", markup))


def _in(file: str, name: str = "other") -> Problem:
    return single().model_copy(update={"language": Language(name=name, file=file, run=("./x",))})


def test_words_of_a_program_have_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highlighting, "_MAX_SECONDS", 60.0)  # a busy machine takes long to build the first lexer
    shown = highlight(PROGRAM, single())
    for name, word in {"k": "def", "f": "solve", "c": "# why", "b": "len", "n": "1.5"}.items():
        assert f'<span class="{name}">{word}</span>' in shown
    assert '<span class="s">&#34;&#34;&#34;Two</span>\n<span class="s">lines.' in shown
    assert '<span class="k">int</span>' in highlight("int main() { return 0; }", _in("main.cpp", "C++"))
    assert highlight("int main() {}", _in("main.unknown")) == "int main() {}"


@pytest.mark.parametrize("text", ["", "\n\n", "a\r\nb\rc\x0b\x0cd", HOSTILE, "'" * 999, "\x00\ud800é", PROGRAM])
def test_every_character_is_kept_and_escaped(text: str) -> None:
    assert _text(highlight(text, single())) == text
    data = single().model_copy(update={"kind": ProblemKind.DATA})
    assert _text(highlight(f"[1, {text}", data)) == f"[1, {text}"


def test_files_are_highlighted_by_their_names() -> None:
    text = "# === file: main.cpp ===\nint a; // def\n# === file: notes.txt ===\nint b;\n"
    problem = _in("main.cpp").model_copy(update={"many_files": True})
    shown = highlight(text, problem)
    assert '<span class="k">int</span> a; <span class="c">// def</span>' in shown
    assert shown.endswith("\nint b;\n")
    assert _text(shown) == text


def test_long_and_slow_texts_have_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "def f(): pass\n" * (MAX_CHARACTERS // 14 + 1)
    assert highlight(long, single()) == long
    assert "<span" in highlight(long[: MAX_CHARACTERS // 4], single())
    monkeypatch.setattr(highlighting, "_MAX_SECONDS", -1.0)
    assert highlight(PROGRAM, single()) == html.escape(PROGRAM, quote=True).replace("&quot;", "&#34;")


@pytest.mark.parametrize(
    "text", ["int a" + "\n" * 1200, "int a" + " " * 20_000, "int a" + (" " * 200 + "*") * 190, "int a" + "&\t" * 20_000]
)
def test_long_runs_of_white_space_have_no_colours(text: str) -> None:
    began = time.thread_time()
    assert highlight(text, _in("main.cpp", "C++")) == html.escape(text)
    assert time.thread_time() - began < 0.3


def test_the_longest_runs_with_colours_take_little_time() -> None:
    problem = _in("main.cpp", "C++")
    highlight("int a;", problem)  # builds the lexer
    began = time.thread_time()
    shown = highlight(("int a(" + " " * 100 + ")" + " " * 100) * 190, problem)
    assert _text(shown).startswith("int a(")
    # The deadline and one more match.
    assert time.thread_time() - began < 2 * highlighting._MAX_SECONDS


@pytest.mark.parametrize("file", ["settings.ini", "main.java", "main.unknown"])
def test_files_in_other_languages_have_no_colours(file: str) -> None:
    text = f"# === file: {file} ===\n[a]\nb = 1 ; class\n"
    assert highlight(text, _in("main.cpp").model_copy(update={"many_files": True})) == text
