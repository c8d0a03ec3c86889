"""Answers that hold some files of a program, put together with the files of the parent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from speciate.domain.candidate import Failure
from speciate.domain.files import FilesError, files_of, heading_in, sections_of, text_of_sections
from speciate.domain.problem import Problem
from speciate.prompts.diff import Edit, apply_edit
from speciate.prompts.evolve_blocks import blocks_or_none
from speciate.prompts.fences import fenced_blocks, sections
from speciate.prompts.protected import keep_protected
from speciate.prompts.python_source import parse_python
from speciate.prompts.rejection import Reason, rejected

_FENCE: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[^`]*$")


def file_sets(text: str, wanted: int) -> list[str | Failure]:
    """Return the answers of a completion, each with the files that it changes or adds.

    Args:
        text: What the policy wrote.
        wanted: m. With one, all blocks are the files of one answer; with more, those between two separators are.
    """
    blocks = [block for block in fenced_blocks(_headings_inside(text)) if block.text.strip()]
    if not blocks:
        parts = sections(text) if wanted > 1 else [text]
        return [part for part in parts if any(heading_in(line) for line in part.split("\n"))]
    answers: dict[int, list[str]] = {}
    for block in blocks:
        answers.setdefault(block.section if wanted > 1 else 0, []).append(block.text)
    if wanted > 1 and len(answers) == 1:
        return [block.text for block in blocks]
    return [_joined(texts) for texts in answers.values()]


def with_files(base: str, answer: str, problem: Problem) -> str | Failure:
    """Return the base with the files of an answer in place of its own; an answer without a heading is the main file.

    Args:
        base: The parent or the seed program; empty for none.
        answer: Some files, each under its heading.
        problem: Says which file is the main one.
    """
    headed = any(heading_in(line) for line in answer.split("\n"))
    try:
        files = sections_of(answer) if headed else {problem.main_file: answer.strip("\n") + "\n"}
        files = (sections_of(base) if base else {}) | files
        program = text_of_sections(files)
        sections_of(program)  # base and answer together may be too many
    except FilesError as error:
        return rejected(Reason.FILES_MALFORMED, str(error))
    if wrong := problem.wrong_files(files):
        return rejected(Reason.FILES_MALFORMED, f"the program {wrong}")
    return program


def keep_files_protected(base: str, program: str) -> str | Failure:
    """Return the program with everything outside of the EVOLVE-BLOCKs as the base has it, whole files included.

    Both hold the files of a whole program. A base without regions protects nothing; see ``keep_protected``.
    """
    if not blocks_or_none(base):
        return keep_protected("", program)
    before, after = sections_of(base), sections_of(program)
    if added := [name for name in after if name not in before]:
        return rejected(Reason.PROTECTED_REGION_CHANGED, f"the file {added[0]!r} is new: only EVOLVE-BLOCKs may change")
    kept: dict[str, str] = {}
    for name, section in before.items():
        outcome: str | Failure = section
        if blocks_or_none(section):
            outcome = keep_protected(section, after[name])
        elif after[name].rstrip() != section.rstrip():
            outcome = rejected(Reason.PROTECTED_REGION_CHANGED, "there is no EVOLVE-BLOCK: nothing in it may change")
        if isinstance(outcome, Failure):
            return rejected(Reason.PROTECTED_REGION_CHANGED, f"{name}: {outcome.detail}")
        kept[name] = outcome
    return text_of_sections(kept)


def apply_to_files(text: str, edit: Edit, number: int) -> str | Failure:
    """Return the program with an edit made in the file that it names; one that names none fits one place in all files.

    An edit with nothing under SEARCH adds a file that is not there.
    """
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
        known = ", ".join(files)
        outcome = rejected(Reason.DIFF_SEARCH_NOT_FOUND, f"block {number}: no file {edit.file!r} among {known}")
    return outcome if isinstance(outcome, Failure) else text_of_sections(files | {edit.file: outcome})


def syntax_failure(program: str) -> Failure | None:
    """Return why the first file that is not Python is none, or None."""
    for name, text in files_of(program).items():
        tree = parse_python(text)
        if isinstance(tree, Failure):
            return rejected(Reason.SYNTAX_ERROR, f"{name}, {tree.detail}")
    return None


def _headings_inside(text: str) -> str:
    """Move headings that stand right above a fence into it: models put them there as often."""
    lines: list[str] = []
    fence: str | None = None
    for line in text.split("\n"):
        opening = _FENCE.match(line)
        moved: list[str] = []
        if fence is not None:
            fence = None if line.strip() == fence else fence
        elif opening is not None:
            fence = opening[1]
            above = next((i for i in reversed(range(len(lines))) if lines[i].strip()), None)
            if above is not None and heading_in(lines[above]) is not None:
                moved = [lines[above]]
                del lines[above:]
        lines += [line, *moved]
    return "\n".join(lines)


def _joined(texts: Sequence[str]) -> str | Failure:
    """Return the files of several blocks as one answer, a later one in place of an earlier one of the same name."""
    headed = [text for text in texts if any(heading_in(line) for line in text.split("\n"))]
    if not headed:
        return texts[-1]
    try:
        files = {name: section for text in headed for name, section in sections_of(text).items()}
    except FilesError as error:
        return rejected(Reason.FILES_MALFORMED, str(error))
    return text_of_sections(files)
