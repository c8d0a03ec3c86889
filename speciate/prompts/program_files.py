"""Merge the files of an answer with the files of its parent."""

import re
from collections.abc import Callable, Container, Sequence
from typing import Final

from speciate.domain.candidate import Failure
from speciate.domain.files import FilesError, files_of, heading, heading_in, sections_of, text_of_sections
from speciate.domain.problem import Problem
from speciate.prompts.diff import Edit, apply_edit
from speciate.prompts.evolve_blocks import blocks_or_none
from speciate.prompts.fences import by_section, filled_blocks, sections
from speciate.prompts.protected import Kept, keep_protected
from speciate.prompts.python_source import defined_names, parse_python
from speciate.prompts.rejection import Reason, rejected

_FENCE: Final = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)[^`]*+$")
_TITLE: Final = re.compile(r"(?:\W|\d[.)]|[Ff]ile(?:name)?\b){0,12}(\w[\w./-]{0,200}\.\w+)\W*(?:\(.*)?")
"""Name of a file as models write it above a block, such as ``**x.py**``, or in its first comment."""


def file_sets(
    text: str, base: str, main: str, count: int, choose: Callable[[Sequence[str]], str]
) -> list[str | Failure]:
    """Return the files of each answer as one text; one without a heading that defines ``main``'s names is ``main``."""
    blocks = filled_blocks(_headings_inside(text, files_or_none(base)))
    if not blocks:
        return [part for part in (sections(text) if count > 1 else [text]) if _has_heading(part)]
    if count == 1:
        return [_joined([block.text for block in blocks], base, main, choose)]
    groups = by_section(blocks)
    return [*groups[0]] if len(groups) == 1 else [_joined(texts, base, main, choose) for texts in groups]


def unused_files(text: str, program: str) -> list[str]:
    """Return the names of blocks with definitions that a program of one file leaves out."""
    used, blocks = defined_names(program), [b.text.partition("\n") for b in filled_blocks(_headings_inside(text))]
    named = [(heading_in(head) or "", defined_names(rest)) for head, _, rest in blocks]
    return [name for name, own in named if name.endswith(".py") and own and own.isdisjoint(used)]


def files_or_none(text: str) -> dict[str, str]:
    try:
        return files_of(text)
    except FilesError:
        return {}


def _has_heading(text: str) -> bool:
    return any(heading_in(line) for line in text.split("\n"))


def with_files(base: str, answer: str, problem: Problem) -> str | Failure:
    """Return the base with its files replaced by those of an answer; text without a heading is the main file."""
    try:
        files = sections_of(answer) if _has_heading(answer) else {problem.main_file: answer.strip("\n") + "\n"}
        files = (sections_of(base) if base else {}) | files
        program = text_of_sections(files)
        sections_of(program)  # together they may have too many files
    except FilesError as error:
        return rejected(Reason.FILES_MALFORMED, str(error))
    if wrong := problem.wrong_files(files):
        return rejected(Reason.FILES_MALFORMED, f"the program {wrong}")
    return program


def keep_files_protected(base: str, program: str) -> Kept | Failure:
    """Return the program with everything outside of the base's EVOLVE-BLOCKs restored, whole files included.

    Both texts hold all files of a program. A base without regions protects nothing; see ``keep_protected``.
    """
    if not blocks_or_none(base):
        return keep_protected("", program)
    before, after = sections_of(base), sections_of(program)
    if added := [name for name in after if name not in before]:
        return rejected(Reason.PROTECTED_REGION_CHANGED, f"the file {added[0]!r} is new: only EVOLVE-BLOCKs may change")
    sections: dict[str, str] = {}
    difference = ""
    for name, section in before.items():
        # A file without EVOLVE-BLOCKs stays as it is.
        changed = "a file without EVOLVE-BLOCKs must not change" if after[name].rstrip() != section.rstrip() else ""
        blocks = blocks_or_none(section)
        outcome = keep_protected(section, after[name], alone=False) if blocks else Kept(section, changed)
        if isinstance(outcome, Failure):
            return rejected(Reason.PROTECTED_REGION_CHANGED, f"{name}: {outcome.detail}")
        sections[name] = outcome.text
        difference = difference or (outcome.difference and f"{name}: {outcome.difference}")
    program = text_of_sections(sections)
    if difference and sections == before:
        return rejected(Reason.PROTECTED_REGION_CHANGED, difference)
    return Kept(program, difference)


def apply_to_files(text: str, edit: Edit, number: int) -> str | Failure:
    """Apply an edit to the file that it names, maybe a new one, or to the one place where its lines match."""
    if edit.file is None:
        return apply_edit(text, edit, number)
    try:
        files = sections_of(text)
    except FilesError as error:
        return rejected(Reason.FILES_MALFORMED, str(error))
    outcome: str | Failure
    if edit.file in files:
        outcome = apply_edit(files[edit.file], edit, number)
    elif not "".join(edit.search).strip():
        outcome = "\n".join(edit.replace)
    else:
        paths = ", ".join(files)
        outcome = rejected(Reason.DIFF_SEARCH_NOT_FOUND, f"block {number}: no file {edit.file!r} among {paths}")
    return outcome if isinstance(outcome, Failure) else text_of_sections(files | {edit.file: outcome})


def syntax_failure(program: str) -> Failure | None:
    for name, text in files_of(program).items():
        tree = parse_python(text)
        if isinstance(tree, Failure):
            return rejected(Reason.SYNTAX_ERROR, f"{name}, {tree.detail}")
    return None


def _headings_inside(text: str, names: Container[str] | None = None) -> str:
    """Move headings directly above a fence into it: models often put them there, or write only the name.

    A name alone is a heading if it is one of the ``names``, or all are, and may also be the block's first comment.
    """
    lines: list[str] = []
    fence: str | None = None
    source = text.split("\n")
    for i, line in enumerate(source):
        opening = _FENCE.match(line)
        moved: list[str] = []
        if fence is not None:
            fence = None if line.strip() == fence else fence
        elif opening is not None:
            fence = opening[1]
            above = next((i for i in reversed(range(len(lines))) if lines[i].strip()), None)
            first = next(filter(str.strip, source[i + 1 : i + 3]), "")
            if above is not None and heading_in(lines[above]) is not None:
                moved = [lines[above]]
                del lines[above:]
            elif heading_in(first) is None:
                named = ["" if above is None else lines[above], first, re.split(r"[\s:=]", line.rstrip())[-1]]
                titles = filter(None, map(_TITLE.fullmatch, named))
                moved = [heading(title[1]) for title in titles if names is None or title[1] in names][:1]
        lines += [line, *moved]
    return "\n".join(lines)


def _joined(texts: Sequence[str], base: str, main: str, choose: Callable[[Sequence[str]], str]) -> str | Failure:
    headed = [text for text in texts if _has_heading(text)]
    if not headed:
        own, parts = defined_names(text := choose(texts)), files_or_none(base)
        homes = [name for name, part in parts.items() if own & defined_names(part)]
        return text if main in homes or len(homes) != 1 else f"{heading(homes[0])}\n{text}"
    lost = [text for text in texts if text not in headed and defined_names(text) and text.strip() not in base]
    try:
        files = {name: section for text in headed for name, section in sections_of(text).items()}
    except FilesError as error:
        return rejected(Reason.FILES_MALFORMED, str(error))
    written = defined_names(files_or_none(base).get(main, ""))
    if len(lost) == 1 and main not in files and written & defined_names(lost[0]):
        files[main] = lost[0].strip("\n") + "\n"
    elif lost:
        wrong = f"{len(lost)} block{'s' * (len(lost) > 1)} without a heading: put {heading('NAME')} above each"
        return rejected(Reason.FILES_MALFORMED, wrong)
    return text_of_sections(files)
