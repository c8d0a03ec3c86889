"""Read texts between tags, and programs from JSON: answers in an object or an array, and arguments of calls of tools.

Models trained on agents call tools that were not offered. Known forms: ``<tool_call>`` with JSON (Hermes, Qwen) or with
``<parameter=NAME>`` (Qwen Coder), ``<invoke>`` with ``<parameter name="NAME">``, and ``[TOOL_CALLS]`` with JSON
(Mistral).
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from speciate.domain.files import FilesError, text_of
from speciate.domain.problem import Problem
from speciate.prompts.diff import MARK
from speciate.prompts.fences import SEPARATOR, filled_blocks, nesting_block, unfenced
from speciate.prompts.python_source import is_program, repaired, statements
from speciate.prompts.text import fenced

ANSWER: Final = re.compile(r"<(answer(?:_\d{1,3})?)>")
MOST_DEPTH: Final = 4
_SHELL: Final = frozenset({"bash", "console", "sh", "shell"})
_OPENING: Final = re.compile(r"\{\s*+\"")
_BETWEEN: Final = re.compile(r"[\s,]*+")
_MOST_TRIES: Final = 4
_PROGRAM_KEYS: Final = ("code", "program", "solution", "answer", "source", "new_code", "implementation", "content")
_NAME_KEYS: Final = ("path", "file", "filename", "file_name", "file_path", "name")
_CONTENT_KEYS: Final = ("content", "contents", "code", "program", "source", "text")
_CALL: Final = re.compile(r"<(tool_call|function_calls|invoke)\b[^>\n]{0,200}>|\[TOOL_CALLS\]")
_PARAMETER: Final = re.compile(r"<parameter(?:=| name=\")([\w.-]{1,60})\"?>\n?")
_EDIT: Final = re.compile(r"[\"=]old_?(?:str|string|text|code)(?:\\?\"\s*:|\"?>)")
_NAME: Final = re.compile(r"(?:\"name\"\s*:\s*\"|<function=|<invoke name=\")([\w.-]{1,60})")


def unwrapped(text: str, problem: Problem, *, several: bool) -> str | None:
    """Return an answer in JSON as fenced blocks; empty if the JSON has no program, None if the answer is not JSON."""
    value = _envelope(text)
    within_prose, edits = value is None, calls_tool(text) is not None and _EDIT.search(text)
    if within_prose and not edits and "```" not in text and not MARK.search(text) and not is_program(text):
        for opening in islice(_OPENING.finditer(text), _MOST_TRIES):
            value = value or _parsed(text[opening.start() :], whole=False)
    if value is None:
        return None
    parts = [part for answer in (_elements(value) if several else [value]) if (part := _as_blocks(answer, problem))]
    return None if within_prose and not parts else f"\n{SEPARATOR}\n".join(parts)


def delimited_texts(text: str) -> list[str]:
    """Return the texts between tags, or the only one between fences that hold others."""
    # An explicit loop: a lazy regex over unclosed tags takes quadratic time.
    texts: list[str] = []
    opening = ANSWER.search(text)
    unclosed = set[str]()
    while opening is not None:
        end = -1 if opening[1] in unclosed else text.find(f"</{opening[1]}>", opening.end())
        if end >= 0:
            # From the last opening tag on: a model may mention the tag before its answer.
            texts.append(unfenced(text[opening.end() : end].rpartition(opening[0])[2].removeprefix("\n")))
        else:
            unclosed.add(opening[1])
        opening = ANSWER.search(text, max(end, opening.end()))
    return texts or [*filter(None, [nesting_block(text)])]


def texts_in(value: object, depth: int = MOST_DEPTH) -> Iterator[str]:
    """Yield the texts in a JSON value. A text may be JSON again, and a list of lines is a text."""
    if isinstance(value, str):
        inner = _parsed(value) if depth and value.lstrip().startswith("{") else None
        yield from [value] if inner is None else texts_in(inner, depth - 1)
    elif isinstance(value, list) and len(value) > 1 and all(isinstance(e, str) and "\n" not in e for e in value):
        yield "\n".join(value)
    elif isinstance(value, dict | list) and depth:
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_in(each, depth - 1)


def _envelope(text: str) -> dict[str, object] | list[object] | None:
    """Return the JSON that makes up an answer: all of it, or its only kind of block."""
    value = _parsed(text)
    if value is None and (blocks := [block for block in filled_blocks(text) if block.info not in _SHELL]):
        values = [_parsed(block.text) for block in blocks]
        value = None if None in values else values[-1]
    return value


def _parsed(text: str, *, whole: bool = True) -> dict[str, object] | list[object] | None:
    """Return the object or array that a text is, in JSON or as a literal of Python; None for any other text."""
    text = text.strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        decoder = json.JSONDecoder(strict=False)
        value, end = decoder.raw_decode(text)
        values = [value]
        while whole and end < len(text):  # one value on each line
            between = _BETWEEN.match(text, end)
            value, end = decoder.raw_decode(text, between.end() if between else end)
            values.append(value)
        value = values if len(values) > 1 else value
    except (ValueError, RecursionError):
        body = statements(text)
        if len(body) != 1 or not isinstance(body[0], ast.Expr):
            return None
        try:
            value = ast.literal_eval(body[0].value)
        except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
            return None
    return value if isinstance(value, dict | list) else None


def _elements(value: object) -> list[object]:
    """Return the answers in a JSON value: the elements of its array, else of the only array in its object."""
    if isinstance(value, dict):
        arrays = [each for each in value.values() if isinstance(each, list) and len(each) > 1]
        value = arrays[0] if len(arrays) == 1 else value
    return [*value] if isinstance(value, list) else [value]


def _as_blocks(value: object, problem: Problem) -> str:
    if problem.many_files and (files := _files(value, MOST_DEPTH)):
        try:
            return fenced(text_of(files))
        except FilesError:
            return ""
    texts = [text for text in texts_in(value) if text.strip()]
    marked = [text for text in texts if MARK.search(text) or filled_blocks(text)]
    if marked:
        return "\n".join(marked)
    if problem.is_python:
        programs = (repaired(text if "\n" in text else text.replace("\\n", "\n")) for text in texts)
        return "\n".join(fenced(program, "python") for program in programs if is_program(program))
    named = [text for key in _PROGRAM_KEYS for text in _under(value, key, MOST_DEPTH)]
    longest = max(named or texts, key=lambda text: (text.count("\n"), len(text)), default="")
    language = problem.language
    return fenced(longest, language.fence if language else "") if " " in longest else ""


def _under(value: object, key: str, depth: int) -> Iterator[str]:
    if isinstance(value, dict | list) and depth:
        if isinstance(value, dict) and isinstance(value.get(key), str):
            yield value[key]
        for each in value.values() if isinstance(value, dict) else value:
            yield from _under(each, key, depth - 1)


def _files(value: object, depth: int) -> Mapping[str, str]:
    """Return the files of a JSON value: an object of names and texts, or objects with a name and a text each."""
    if isinstance(value, dict):
        if value and all(isinstance(name, str) and "." in name and isinstance(t, str) for name, t in value.items()):
            return value
        name, text = (_first_text(value, keys) for keys in (_NAME_KEYS, _CONTENT_KEYS))
        if name and text and "." in name:
            return {name: text}
    if not isinstance(value, dict | list) or not depth:
        return {}
    files: dict[str, str] = {}
    for each in value.values() if isinstance(value, dict) else value:
        files |= _files(each, depth - 1)
    return files


def _first_text(value: Mapping[object, object], keys: tuple[str, ...]) -> str:
    return next((text for key in keys if isinstance(text := value.get(key), str)), "")


def calls_tool(text: str) -> str | None:
    """Return the name of the tool that a completion calls, empty if it has none; None without a call."""
    if _CALL.search(text) is None:
        return None
    named = _NAME.search(text)
    return named[1] if named else ""


def with_programs(text: str) -> str:
    """Replace each tool call by the argument with the most lines, which is the program, as a fenced block."""
    call = _CALL.search(text)
    if call is None:
        return text
    head, calls = text[: call.start()], text[call.end() :]
    programs = [max(group, key=lambda value: (value.count("\n"), len(value))) for group in _arguments(calls) if group]
    return "\n".join([head, *(value if "```" in value else f"```python\n{value.strip()}\n```" for value in programs)])


def _arguments(calls: str) -> Iterator[list[str]]:
    parameters = [*_parameters(calls)]
    if parameters:  # an edit holds no program
        yield [value for _, value in parameters if not any(name.startswith("old") for name, _ in parameters)]
        return
    decoder = json.JSONDecoder(strict=False)
    place = 0
    while (start := min((i for mark in "{[" if (i := calls.find(mark, place)) >= 0), default=-1)) >= 0:
        try:
            value, place = decoder.raw_decode(calls, start)
        except (ValueError, RecursionError):
            # A truncated or malformed call; searching on from the next brace could take quadratic time.
            return
        for each in value if isinstance(value, list) else [value]:
            if not _EDIT.search(json.dumps(each)):
                yield [text for text in texts_in(each) if "\n" in text or " " in text]


def _parameters(calls: str) -> Iterator[tuple[str, str]]:
    opening = _PARAMETER.search(calls)
    while opening is not None and (end := calls.find("</parameter>", opening.end())) >= 0:
        yield opening[1], calls[opening.end() : end]
        opening = _PARAMETER.search(calls, end)
