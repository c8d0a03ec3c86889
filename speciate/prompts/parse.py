"""From a completion to children: which programs a model wrote, and why the rest cannot be used.

Whatever the text, the outcome is a list of answers; nothing in here raises on hostile input.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from speciate.domain.candidate import Failure
from speciate.domain.language import Language
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.prompts.codecs import codec_of
from speciate.prompts.diff import apply_edits, read_edits
from speciate.prompts.evolve_blocks import blocks_or_none
from speciate.prompts.fences import Fenced, fenced_blocks, sections
from speciate.prompts.program_files import apply_to_files, file_sets, keep_files_protected, syntax_failure, with_files
from speciate.prompts.protected import keep_protected, protected_digest
from speciate.prompts.python_source import defined_names, is_program, parse_python, shape_key
from speciate.prompts.rejection import Reason, rejected
from speciate.prompts.text import unstorable

_ANSWER: Final = re.compile(r"<(answer(?:_\d{1,3})?)>")
_THOUGHT_END: Final = "</think>"
_MAX_READ: Final = 8 * MAX_PROGRAM_BYTES


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a completion.

    Attributes:
        program: Program text (or data document). Kept for a rejected one where it can be stored, else empty.
        failure: Why it is rejected, or None.
    """

    program: str
    failure: Failure | None = None


def parse_completion(text: str, *, problem: Problem, policy: Policy, parent: str | None) -> list[Answer]:
    """Read the answers out of a completion.

    Args:
        text: What the policy wrote.
        problem: Says whether candidates are Python programs (kinds ``cases`` and ``evaluator``) or data.
        policy: At most its ``answers_per_rollout`` answers are read; further ones are ignored.
        parent: Program that was to be changed; None stands for the problem's seed program, if there is one. Diffs are
            applied to it, and its protected regions are kept.

    Returns:
        One to m answers in the order in which they were written. A completion without any gives one rejected answer.
    """
    base = (parent if parent is not None else problem.seed_program) or None
    wanted = policy.answers_per_rollout
    body = after_thoughts(text[:_MAX_READ].replace("\r\n", "\n"))
    if policy.codec is not None:
        base = None  # a codec writes whole candidates
    raw = _written(body, base, problem, policy)
    if not raw:
        return [Answer("", _nothing(problem, f"nothing to read in {len(text)} characters of completion"))]
    return _without_repeats([_finished(one, base, problem) for one in raw[:wanted]], problem)


def _written(text: str, base: str | None, problem: Problem, policy: Policy) -> list[str | Failure]:
    wanted = policy.answers_per_rollout
    if policy.codec is not None:
        return [*codec_of(policy.codec).read(text, answers=wanted)]
    if found := _from_diffs(text, base, wanted, many_files=problem.many_files):
        return found
    if problem.many_files:
        return file_sets(text, wanted)
    return _programs(text, wanted, problem) if problem.is_python else _texts(text, wanted, problem.language)


def after_thoughts(text: str) -> str:
    """Return what a model wrote after it had thought."""
    _, end, rest = text.rpartition(_THOUGHT_END)
    return rest if end else text


def _from_diffs(text: str, base: str | None, wanted: int, *, many_files: bool) -> list[str | Failure]:
    """Apply SEARCH/REPLACE blocks where there are any, also for a policy that was asked for a rewrite."""
    groups = read_edits(text, several=wanted > 1)
    if groups and base is None:
        return [rejected(Reason.DIFF_MALFORMED, "there is no parent to apply a diff to: expected a whole program")]
    return [apply_edits(base or "", edits, apply_to_files if many_files else None) for edits in groups]


def _texts(text: str, wanted: int, language: Language | None) -> list[str | Failure]:
    """Return answers whose grammar is not ours to check: documents, and programs that are not Python.

    Of blocks with labels, those in the problem's language count where there are any: models say how to build, too.
    """
    tagged = _tagged(text)
    if tagged:
        return [*tagged] if wanted > 1 else [tagged[-1]]
    blocks = [block for block in fenced_blocks(text) if block.text.strip()]
    if language is not None:
        blocks = [block for block in blocks if block.info in language.labels] or blocks
    if blocks:
        return [block.text for block in (blocks if wanted > 1 else blocks[-1:])]
    return [*sections(text)] if wanted > 1 else [text] if text.strip() else []


def _tagged(text: str) -> list[str]:
    # Written out, since a lazy regex over unclosed tags takes quadratic time.
    found: list[str] = []
    opening = _ANSWER.search(text)
    while opening is not None and (end := text.find(f"</{opening[1]}>", opening.end())) >= 0:
        # From the last opening on: a model that speaks of its answer names the tag before.
        found.append(_unfenced(text[opening.end() : end].rpartition(opening[0])[2]))
        opening = _ANSWER.search(text, end)
    return found


def _unfenced(text: str) -> str:
    """Return what stands in the fence where a text is one fenced block and nothing else."""
    lines = text.strip().split("\n")
    if not lines[0].startswith(("```", "~~~")) or lines[-1].strip("`~ \t"):
        return text
    blocks = fenced_blocks(text.strip())
    return blocks[0].text if len(blocks) == 1 else text


def _programs(text: str, wanted: int, problem: Problem) -> list[str | Failure]:
    entry = problem.entry_point if problem.kind is ProblemKind.CASES else None
    blocks = [block for block in fenced_blocks(text) if block.text.strip()]
    if not blocks:
        parts = sections(text) if wanted > 1 and not is_program(text) else [text]
        return [part for part in parts if len(part) <= MAX_PROGRAM_BYTES and is_program(part)]
    labelled = [block for block in blocks if block.may_be_python] or blocks
    if wanted == 1:
        return [_best(labelled, entry, whole=text)]
    by_section: dict[int, list[Fenced]] = {}
    for block in labelled:
        by_section.setdefault(block.section, []).append(block)
    if len(by_section) == 1:
        return [block.text for block in labelled]
    return [_best(group, entry) for group in by_section.values()]


def _best(blocks: Sequence[Fenced], entry: str | None, whole: str = "") -> str:
    """Return the program among several blocks: the last one that is not a fragment.

    Models draft first and answer last, but also close with a short example of use: of the blocks that are Python,
    those with the entry point (else those at least half as long as the longest) count, and the last of them wins.
    """
    if (program := _all_fenced(whole)) is not None:
        return program
    if len(blocks) == 1:
        return blocks[0].text
    good = [b.text for b in blocks if len(b.text) <= MAX_PROGRAM_BYTES and isinstance(parse_python(b.text), ast.Module)]
    if not good:
        return max((b.text for b in blocks), key=len)
    defining = [text for text in good if entry in defined_names(text)] if entry else []
    longest = max(len(text) for text in good)
    return (defining or [text for text in good if 2 * len(text) >= longest])[-1]


def _all_fenced(whole: str) -> str | None:
    """Return all from the first to the last fence where that is Python: the fences between stand in a docstring."""
    if whole.count("```") <= 2 or len(whole) > MAX_PROGRAM_BYTES:
        return None
    start, end = whole.find("\n", whole.find("```")), whole.rfind("\n```")
    program = whole[start + 1 : end + 1]
    return program if 0 <= start < end and isinstance(parse_python(program), ast.Module) else None


def _finished(raw: str | Failure, base: str | None, problem: Problem) -> Answer:
    if isinstance(raw, Failure):
        return Answer("", raw)
    if failure := _unkeepable(raw):
        return Answer("", failure)
    kept = _kept(raw, base, problem)
    if isinstance(kept, Failure):
        return Answer(raw, kept)
    program = kept
    if problem.kind is ProblemKind.DATA:
        program = kept.strip()
    elif base is None:
        program = kept.lstrip("\n").rstrip() + "\n"
    # Again, since the parent's text came in: its regions were kept, or a diff was applied to it.
    if failure := _unkeepable(program):
        return Answer("", failure)
    if not program.strip():
        return Answer("", _nothing(problem, "the answer is empty"))
    return Answer(program, _syntax(program, problem))


def _kept(raw: str, base: str | None, problem: Problem) -> str | Failure:
    """Return the answer with what it leaves to its parent: other files, and all outside of the EVOLVE-BLOCKs."""
    if problem.kind is ProblemKind.DATA:
        return raw
    whole = with_files(base or "", raw, problem) if problem.many_files else raw
    keep = keep_files_protected if problem.many_files else keep_protected
    kept = whole if isinstance(whole, Failure) else keep(base or "", whole)
    if base is None or isinstance(kept, Failure) or not blocks_or_none(problem.seed_program):
        return kept
    if protected_digest(kept) != protected_digest(problem.seed_program):
        detail = "what stands outside of the EVOLVE-BLOCKs is not what stands there in the seed program"
        return rejected(Reason.PROTECTED_REGION_CHANGED, detail)
    return kept


def _syntax(program: str, problem: Problem) -> Failure | None:
    if not problem.is_python:
        return None
    if problem.many_files:
        return syntax_failure(program)
    tree = parse_python(program)
    return tree if isinstance(tree, Failure) else None


def _nothing(problem: Problem, detail: str) -> Failure:
    return rejected(Reason.NO_CODE_BLOCK if problem.is_python else Reason.NO_ANSWER, detail)


def _unkeepable(program: str) -> Failure | None:
    if reason := unstorable(program):
        return rejected(Reason.UNSTORABLE_TEXT, reason)
    size = len(program.encode())
    if size <= MAX_PROGRAM_BYTES:
        return None
    return rejected(Reason.PROGRAM_TOO_LARGE, f"{size} bytes: at most {MAX_PROGRAM_BYTES} are accepted")


def _without_repeats(answers: list[Answer], problem: Problem) -> list[Answer]:
    if len(answers) == 1:
        return answers
    first: dict[str, int] = {}
    for position, answer in enumerate(answers):
        if answer.failure is None:
            earlier = first.setdefault(shape_key(answer.program) if problem.is_python else answer.program, position)
            if earlier != position:
                detail = f"answer {position + 1} is the same program as answer {earlier + 1}"
                answers[position] = Answer(answer.program, rejected(Reason.DUPLICATE_IN_ROLLOUT, detail))
    return answers
