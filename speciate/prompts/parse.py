"""Parse completions into candidates, and reject unusable answers with a reason. Never raises on hostile input."""

import ast
import re
import textwrap
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from speciate.domain.candidate import Failure
from speciate.domain.files import heading_in
from speciate.domain.known_languages import KNOWN
from speciate.domain.language import Language
from speciate.domain.policy import EditFormat, Policy, PromptStyle
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.rollout import ONLY_REASONING, REFUSED
from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.prompts.codecs import codec_of
from speciate.prompts.compact import with_opening
from speciate.prompts.diff import MARK, UNIFIED, apply_edit, apply_edits, read_edits, tolerating_fences
from speciate.prompts.envelopes import ANSWER, calls_tool, delimited_texts, unwrapped, with_programs
from speciate.prompts.evolve_blocks import blocks_or_none, contents_of, outside_of
from speciate.prompts.fences import PYTHON_LABELS, Fenced, by_section, ends_in_block, filled_blocks, sections
from speciate.prompts.program_blocks import (
    Wanted,
    answer_groups,
    best_program,
    elision_in,
    is_python,
    last_long,
    separate_programs,
    versions,
)
from speciate.prompts.program_files import (
    apply_to_files,
    file_sets,
    files_or_none,
    keep_files_protected,
    syntax_failure,
    unused_files,
    with_files,
)
from speciate.prompts.protected import Kept, keep_protected, protected_digest, python_change
from speciate.prompts.python_source import (
    complete_part,
    defined_names,
    has_odd_blanks,
    is_program,
    names_of,
    read_python,
    repaired,
    shape_key,
    with_plain_blanks,
)
from speciate.prompts.rejection import Reason, rejected
from speciate.prompts.render import noun_of
from speciate.prompts.text import unstorable

_THOUGHTS: Final = ("think", "thinking", "reasoning")
"""Tags around the reasoning of a model; a chat template may have opened ``<think>``."""
_PROGRAM_LABELS: Final = frozenset(
    {"bash", "console", "sh", "shell", *(label for known in KNOWN.values() for label in known.labels), *PYTHON_LABELS}
) - {""}
_FOREIGN: Final = (_PROGRAM_LABELS - PYTHON_LABELS) | {
    *("css", "csv", "diff", "html", "ini", "java", "json", "jsonc", "latex", "makefile", "markdown", "md", "output"),
    *("patch", "sql", "toml", "ts", "tsx", "typescript", "xml", "yaml", "yml", "zsh"),
}
"""Labels of blocks that hold no Python, unless they define what is wanted."""
_CALL: Final = re.compile(r"\b(?!(?:for|if|while|switch|return)\b)(\w{1,100})\s*+\(")
_CALLED: Final = re.compile(r"\.call\(\s*+[\"'](\w{1,100})[\"']")
_CUT: Final = "length"
"""Finish reason of a completion that reached its limit of tokens."""
_INCOMPLETE: Final = frozenset({Reason.SYNTAX_ERROR, Reason.DIFF_MALFORMED, Reason.NO_CODE_BLOCK, Reason.NO_ANSWER})
"""Rejections for which the end of a completion can be the cause."""
_MAX_READ: Final = 8 * MAX_PROGRAM_BYTES
_REASONING_REMEDY: Final = (
    "Start the endpoint without a reasoning parser (llama.cpp: --reasoning-format none; vLLM: without"
    " --reasoning-parser), or have the model think less."
)
_NO_TEXT_REMEDY: Final = "Check the model and its chat template, or raise its limit of tokens."
_UNDONE: Final = "Changes outside of the EVOLVE-BLOCKs do not stay there:"
SEVERAL: Final = "Your answer held"
"""Begin of the note on several blocks that define the same."""
_PROTECTED: Final = "the text outside of the EVOLVE-BLOCKs differs from the seed program"


@dataclass(frozen=True, slots=True)
class Answer:
    program: str
    """Program text (or data document); empty if a rejected one cannot be stored."""
    failure: Failure | None = None
    note: str = ""
    """What reading changed: text outside of the EVOLVE-BLOCKs, for the author; empty if nothing."""


def parse_completion(
    text: str, *, problem: Problem, policy: Policy, parent: str | None, finish_reason: str = "stop"
) -> list[Answer]:
    """Return the answers of a completion.

    There are one to m = ``policy.answers_per_rollout``, in the order written; a completion without any gives one
    rejected answer. The completion of a policy with the style ``prefilled`` continues an opened code block. Diffs are
    applied to the parent, or without one to the problem's seed program, and its protected regions are kept. The finish
    reason ``length`` explains an incomplete last answer, ``REFUSED`` and ``ONLY_REASONING`` say that the text is none.
    """
    if finish_reason == REFUSED:
        return [Answer("", rejected(Reason.REFUSED, text))]
    if finish_reason == ONLY_REASONING:
        sent = f"the endpoint sent its whole answer as reasoning_content ({len(text)} characters)."
        return [Answer("", rejected(Reason.ONLY_REASONING, f"{sent}\n{_REASONING_REMEDY}"))]
    cut = finish_reason == _CUT
    if not cut and not text.strip():
        return [Answer("", rejected(Reason.NO_TEXT, f"the endpoint sent an empty text.\n{_NO_TEXT_REMEDY}"))]
    text = with_opening(text, problem, policy, parent)
    if cut and _ends_in_reasoning(text):
        detail = f"the completion reached max_tokens ({policy.sampling.max_tokens}) inside its reasoning"
        return [Answer("", rejected(Reason.TRUNCATED_THINKING, detail))]
    base = (parent if parent is not None else problem.seed_program) or None
    limit = policy.answers_per_rollout
    body = after_reasoning(text[:_MAX_READ].replace("\r\n", "\n").lstrip("\ufeff"))
    if policy.codec is not None:
        base = None  # codecs encode whole candidates
    raw = _raw_answers(body, base, problem, policy) or [_nothing_read(body, problem, policy)]
    answers = [read_program(one, base, problem) for one in raw[:limit]]
    if limit == 1 and (note := _second_definition(body, base, problem, answers[0].program)):
        answers = [replace(answers[0], note=" ".join(filter(None, (note, answers[0].note))))]
    if policy.prompt_style is PromptStyle.SCAFFOLDED:  # the sampler may have ended any of them at its limit
        answers = [_shortened(one, answer, base, problem) for one, answer in zip(raw, answers, strict=False)]
    if cut and len(raw) <= limit:
        last = _shortened(raw[-1], answers[-1], base, problem)
        answers[-1] = _explain_cut(last, policy, problem, unclosed=ends_in_block(body))
    return _reject_duplicates(answers, problem)


def _second_definition(text: str, base: str | None, problem: Problem, program: str) -> str:
    """Return that several blocks of an answer define what is wanted, and which was used; empty if one does."""
    if problem.many_files or MARK.search(text):
        return ""
    if problem.language is not None and noun_of(problem) == "program":
        blocks = _preferred(filled_blocks(text), problem.language.labels)
        programs = [block.text for block in blocks if not _is_quote(block.text.strip(), base or "")] or [""]
        count = sum(2 * len(each) >= max(map(len, programs)) for each in programs)
        return f"{SEVERAL} {count} blocks; the last was used." if count > 1 else ""
    if not problem.is_python:
        count = 0 if noun_of(problem) != "text" or delimited_texts(text) else len(filled_blocks(text))
        return f"Of {count} blocks one was used: put a longer fence around a text with fences." if count > 1 else ""
    texts = [block.text for block in filled_blocks(text) if block.text.strip() not in (base or "")]
    names, last = _wanted(base, problem).names, "the last" if texts and texts[-1].strip() in program else "one"
    counts = Counter(name for each in texts for name in sorted(names & defined_names(each)))
    name, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    left = "".join(f"The block {each} was not used: a program is one file." for each in unused_files(text, program)[:1])
    return f"{SEVERAL} {count} blocks that define {name}; {last} was used." if count > 1 else left


def _form(problem: Problem, policy: Policy) -> str:
    """Return the form of an answer that the prompt asks for."""
    if policy.edit_format is EditFormat.DIFF:
        return "answer with SEARCH/REPLACE blocks"
    return f"answer with the whole {'block' if blocks_or_none(problem.seed_program) else 'program'} in one code fence"


def _nothing_read(text: str, problem: Problem, policy: Policy) -> Failure:
    if (tool := calls_tool(text)) is not None:
        named = f" {tool}" if tool else ""
        return rejected(Reason.TOOL_CALL, f"the completion calls the tool{named} without a program in its arguments")
    if problem.kind is not ProblemKind.DATA and UNIFIED.search(text):
        return rejected(Reason.DIFF_MALFORMED, f"a unified diff cannot be applied: {_form(problem, policy)}")
    if labels := sorted({block.info for block in filled_blocks(text)} - PYTHON_LABELS):
        return _no_answer(problem, f"the answer has no program, only blocks labelled {', '.join(labels)[:100]}")
    fence = "no code fence" if problem.kind is not ProblemKind.DATA and not filled_blocks(text) else "nothing to read"
    return _no_answer(problem, f"the answer has {fence}")


def _ends_in_reasoning(text: str) -> bool:
    """Return True if a truncated completion holds no text but reasoning. Endpoints may hide all of it."""
    rest = after_reasoning(text).lstrip()
    return not rest or rest.startswith(tuple(f"<{tag}>" for tag in _THOUGHTS))


def _shortened(raw: str | Failure, answer: Answer, base: str | None, problem: Problem) -> Answer:
    """Return a truncated answer without its incomplete end, often examples, if all functions are complete."""
    whole = isinstance(raw, Failure) or answer.failure is None or answer.failure.reason != Reason.SYNTAX_ERROR
    if isinstance(raw, Failure) or whole or problem.many_files:
        return answer
    part = complete_part(raw, _wanted(base, problem).names)
    program = answer if part is None else read_program(part, base, problem)
    return answer if program.failure is not None else program


def _wanted(base: str | None, problem: Problem) -> Wanted:
    """Return what an answer has to define: the functions and classes of the region that may change.

    Without any these are the names that it assigns; without a program to change, the names that are called.
    """
    if problem.many_files and base:
        base = files_or_none(base).get(problem.main_file, "")
    blocks = blocks_or_none(base or "")
    texts = [textwrap.dedent(text) for text in (contents_of(base, blocks) if base and blocks else [base or ""])]
    names = frozenset[str]().union(*map(defined_names, texts)) or frozenset().union(
        *(names_of(t).written for t in texts)
    )
    around = names_of("".join(outside_of(base, blocks))).bound if base and blocks else frozenset[str]()
    called = frozenset({problem.entry_point, *_CALLED.findall(problem.evaluator)})
    return Wanted(names or called, "".join(texts), around)


def _explain_cut(answer: Answer, policy: Policy, problem: Problem, *, unclosed: bool) -> Answer:
    """Return the last answer of a truncated completion, which names the limit if it is, or may be, incomplete."""
    limit, failure = f"the completion reached max_tokens ({policy.sampling.max_tokens})", answer.failure
    if failure is None and unclosed and problem.language is not None:  # only Python is read for its syntax
        return Answer(answer.program, rejected(Reason.TRUNCATED, f"{limit} inside the program"))
    if failure is None and unclosed and answer.program:
        return replace(answer, note=" ".join(filter(None, (answer.note, f"The end may be missing: {limit}."))))
    if failure is None or failure.reason not in _INCOMPLETE:
        return answer
    return Answer(answer.program, rejected(Reason.TRUNCATED, f"{limit}: {failure.detail}"))


def _raw_answers(text: str, base: str | None, problem: Problem, policy: Policy) -> list[str | Failure]:
    several = policy.answers_per_rollout > 1
    if policy.codec is not None:
        return [*codec_of(policy.codec).read(text, answers=policy.answers_per_rollout)]
    is_json = problem.language is not None and "json" in problem.language.labels  # the program, not an envelope
    is_text = problem.kind is ProblemKind.DATA or is_json or (not problem.is_python and delimited_texts(text))
    if not is_text and (blocks := unwrapped(text, problem, several=several)) is not None:
        if not blocks:
            return [_no_answer(problem, "the answer is JSON without a program in it")]
        text = blocks
    expected = _wanted(base, problem)
    if not _quotes_edits(text, expected, problem, policy) and (diffs := _from_diffs(text, base, problem, policy)):
        return diffs
    if problem.many_files:
        choose = partial(best_program, expected=expected) if problem.is_python else last_long
        return file_sets(text, base or "", problem.main_file, policy.answers_per_rollout, choose)
    if not problem.is_python:
        return _texts(text, policy.answers_per_rollout, problem.language, base or "")
    if not filled_blocks(text):  # a program may mention the marks of a call
        text = with_programs(text)
    return _programs(text, expected, several=several)


def _quotes_edits(text: str, expected: Wanted, problem: Problem, policy: Policy) -> bool:
    """Return True if the marks of edits in an answer stand within a whole program, such as in its strings."""
    if MARK.search(text) is None:
        return False
    texts = [block.text for block in filled_blocks(text) if MARK.search(block.text)]
    if problem.is_python:
        whole = [*texts, text, _all_fenced(text) or ""]
        programs = [each for each in whole if MARK.search(each) and is_python(each)]  # an edit itself is not Python
        return any(problem.many_files or not expected.names.isdisjoint(defined_names(each)) for each in programs)
    if policy.edit_format is EditFormat.DIFF:
        return False
    return any(not _begins_or_ends_with_edit(each) for each in [*texts, *delimited_texts(text)])


def _begins_or_ends_with_edit(text: str) -> bool:
    lines = [line for line in text.split("\n") if line.strip() and heading_in(line) is None]
    return not lines or MARK.match(lines[0]) is not None or lines[-1].lstrip().startswith(">>>>>")


def after_reasoning(text: str) -> str:
    """Return the text after a model's reasoning; all of it if the reasoning has no end.

    A tag in quotes is part of a program. If nothing follows the reasoning, the answer is in it.
    """
    start = text.lstrip()
    for tag in _THOUGHTS:
        if tag == "think" or start.startswith(f"<{tag}>"):
            text = _after(text, tag)
    return text


def _after(text: str, tag: str) -> str:
    ends, fenced, opened = list[re.Match[str]](), False, text.lstrip().startswith(f"<{tag}>")
    begin = re.compile(rf"(?m)^[ \t]*<{tag}>")
    first = begin.search(text)
    last = first.end() if first and not re.search("```|~~~|<answer", text[: first.start()]) else 0
    for mark in re.finditer(rf"(?m)^[ \t]*(?:(```|~~~)|(</{tag}>))(?![\"'])|(?<![\"'`])</{tag}>(?![\"'`])", text):
        if mark[1]:
            fenced = not fenced
        elif first and (fenced or "<answer" in text[: mark.start()]) and begin.search(text, last, mark.start()):
            continue  # the end of a pair within the answer
        elif mark[2] or not fenced or (opened and not ends):  # else a line of a program mentions it
            ends.append(mark)
            last, fenced = mark.end(), False
    for end in reversed(ends):
        if text[end.end() :].strip():
            return text[end.end() :]
        text = text[: end.start()]
    return text


def _from_diffs(text: str, base: str | None, problem: Problem, policy: Policy) -> list[str | Failure]:
    """Apply SEARCH/REPLACE blocks if there are any, even if the policy was asked for a rewrite."""
    if problem.kind is not ProblemKind.DATA and has_odd_blanks(text) and not has_odd_blanks(base or ""):
        text = with_plain_blanks(text)
    groups = read_edits(text, several=policy.answers_per_rollout > 1)
    if groups and base is None:
        return [rejected(Reason.DIFF_MALFORMED, "there is no parent to apply a diff to: expected a whole program")]
    apply = tolerating_fences(apply_to_files if problem.many_files else apply_edit)
    applied = [apply_edits(base or "", edits, apply) for edits in groups]
    if policy.edit_format is EditFormat.DIFF:
        return applied
    advice = f"\nOr {_form(problem, policy)}, as asked."
    return [replace(one, detail=one.detail + advice) if isinstance(one, Failure) else one for one in applied]


def _texts(text: str, count: int, language: Language | None, base: str) -> list[str | Failure]:
    """Return answers whose syntax is not checked: documents, and programs in languages other than Python.

    Blocks labelled with the problem's language are preferred, because models also quote build commands.
    """
    tagged = delimited_texts(text)
    if not tagged:
        blocks = filled_blocks(text)
        if language:
            tagged = [block.text for block in _preferred(blocks, language.labels)]
            own = [each for each in tagged if not _is_quote(each.strip(), base)]
            tagged = own if any(each.strip() not in base for each in own) else tagged
        else:  # a document, beside which a model may show a program that checks it
            tagged = [block.text for block in blocks if block.info not in _PROGRAM_LABELS] or [b.text for b in blocks]
        if not tagged and (opened := ANSWER.search(text)) is not None:
            tagged = [text[opened.end() :]]  # without an end
    if tagged:
        return [*tagged] if count > 1 else [last_long(tagged) if language else tagged[-1]]
    return [part for part in (sections(text) if count > 1 else [text]) if part.strip()]


def _is_quote(text: str, base: str) -> bool:
    """Return True if a block quotes its parent: all of it, a region, or a part without what the rest calls."""
    blocks = blocks_or_none(base)
    whole = {each.strip() for each in (base, *contents_of(base, blocks))}
    called = {*_CALL.findall("".join(outside_of(base, blocks)))} & {*_CALL.findall(text)}
    return text in whole or (text in base and not called)


def _preferred(blocks: list[Fenced], labels: frozenset[str]) -> list[Fenced]:
    return [block for block in blocks if block.info in labels] or blocks


def _programs(text: str, expected: Wanted, *, several: bool) -> list[str | Failure]:
    blocks = filled_blocks(text)
    if not blocks:
        parts = [text] if is_program(text) else delimited_texts(text) or (sections(text) if several else [text])
        return [part for part in map(repaired, parts) if len(part) <= MAX_PROGRAM_BYTES and is_program(part)]
    blocks = [replace(block, text=repaired(block.text)) for block in _preferred(blocks, PYTHON_LABELS)]
    blocks = [block for block in blocks if _may_be_python(block, expected)]
    if not blocks:
        return []
    if not several:
        whole = _all_fenced(text)
        return [best_program([block.text for block in blocks], expected) if whole is None else whole]
    groups = answer_groups(by_section(blocks), expected)
    if len(groups) == 1:
        return [*separate_programs([each for text in groups[0] for each in versions(text, expected)], expected)]
    return [best_program(group, expected) for group in groups]


def _may_be_python(block: Fenced, expected: Wanted) -> bool:
    if block.info in _FOREIGN or UNIFIED.search(block.text):
        return not expected.names.isdisjoint(names_of(block.text).bound)
    return True


def _all_fenced(whole: str) -> str | None:
    """Return the text from the first to the last fence if it is Python: the inner fences are then in a docstring."""
    if whole.count("```") <= 2 or len(whole) > MAX_PROGRAM_BYTES:
        return None
    start, end = whole.find("\n", whole.find("```")), whole.rfind("\n```")
    program = whole[start + 1 : end + 1]
    return program if 0 <= start < end and isinstance(read_python(program), ast.Module) else None


def read_program(raw: str | Failure, base: str | None, problem: Problem) -> Answer:
    """Return the answer of a program, or of its changed files; ``base`` restores the others and protected regions."""
    if isinstance(raw, Failure):
        return Answer("", raw)
    raw = _repaired(raw, problem)
    if failure := _unstorable(raw):
        return Answer("", failure)
    restored = _restored(raw, base, problem)
    if isinstance(restored, Failure):
        return Answer(raw, restored)
    program = restored.text
    if problem.kind is ProblemKind.DATA:
        program = program.strip()
    elif base is None:
        program = program.lstrip("\n").rstrip() + "\n"
    # Check again, because text of the parent was merged in.
    if failure := _unstorable(program):
        return Answer("", failure)
    if not raw.strip() or not program.strip():
        return Answer("", _no_answer(problem, "the answer is empty"))
    failure = _left_out(raw, program, base, problem) or _syntax(program, problem, raw)
    return Answer(program, failure, restored.difference and f"{_UNDONE} {restored.difference}")


def _repaired(raw: str, problem: Problem) -> str:
    if problem.kind is ProblemKind.DATA:
        return raw
    raw = raw.removeprefix("\ufeff")
    return repaired(raw) if problem.is_python and len(raw) <= MAX_PROGRAM_BYTES else raw


def _left_out(raw: str, program: str, base: str | None, problem: Problem) -> Failure | None:
    if not problem.is_python or problem.many_files or (line := elision_in(raw, base or "")) is None:
        return None
    names = names_of(program)
    required = _wanted(base, problem).names if base else frozenset[str]()
    if is_python(program) and not names.free and required <= names.bound:
        return None
    return rejected(Reason.CODE_LEFT_OUT, f"this line stands for code that the answer leaves out: {line}")


def _restored(raw: str, base: str | None, problem: Problem) -> Kept | Failure:
    if problem.kind is ProblemKind.DATA:
        return Kept(raw)
    text = with_files(base or "", raw, problem) if problem.many_files else raw
    if isinstance(text, Failure):
        return text
    whole = (keep_files_protected if problem.many_files else keep_protected)(base or "", text)
    if base is None or isinstance(whole, Failure):
        return whole
    return _unprotected(whole.text, problem) or whole


def _unprotected(program: str, problem: Problem) -> Failure | None:
    seed, files = problem.seed_program, problem.files_in(program)
    if not blocks_or_none(seed):
        return None
    change = _PROTECTED if protected_digest(program) != protected_digest(seed) else ""
    if not change and problem.is_python:
        changes = (python_change(text, files.get(name, "")) for name, text in problem.files_in(seed).items())
        change = next(filter(None, changes), "")
    return rejected(Reason.PROTECTED_REGION_CHANGED, change) if change else None


def _syntax(program: str, problem: Problem, sent: str = "") -> Failure | None:
    """Return the syntax error of a program, with its line in the text as sent if that has the error, too."""
    if not problem.is_python:
        return None
    if problem.many_files:
        return syntax_failure(program)
    if not isinstance(tree := read_python(program), Failure):
        return None
    own = read_python(textwrap.dedent(sent))
    return own if isinstance(own, Failure) else tree


def program_failure(program: str, problem: Problem) -> Failure | None:
    """Return why a whole program that no policy wrote cannot be a candidate of a problem, or None if it can."""
    if failure := _unstorable(program):
        return failure
    if not program.strip():
        return _no_answer(problem, "the program is empty")
    if problem.many_files:
        whole = with_files("", program, problem)
        if isinstance(whole, Failure):
            return whole
    return _unprotected(program, problem) or _syntax(program, problem)


def _no_answer(problem: Problem, detail: str) -> Failure:
    return rejected(Reason.NO_CODE_BLOCK if problem.is_python else Reason.NO_ANSWER, detail)


def _unstorable(program: str) -> Failure | None:
    if reason := unstorable(program):
        return rejected(Reason.UNSTORABLE_TEXT, reason)
    size = len(program.encode())
    if size <= MAX_PROGRAM_BYTES:
        return None
    return rejected(Reason.PROGRAM_TOO_LARGE, f"{size} bytes: at most {MAX_PROGRAM_BYTES} are accepted")


def _reject_duplicates(answers: list[Answer], problem: Problem) -> list[Answer]:
    first: dict[str, int] = {}
    for position, answer in enumerate(answers):
        if answer.failure is None:
            earlier = first.setdefault(shape_key(answer.program) if problem.is_python else answer.program, position)
            if earlier != position:
                detail = f"answer {position + 1} is the same program as answer {earlier + 1}"
                answers[position] = Answer(answer.program, rejected(Reason.DUPLICATE_IN_ROLLOUT, detail))
    return answers
