"""The evaluator of ToolRL problems: this file, word for word, is the author's script that scores answers.

Nothing but the standard library is imported, since the script has to run by itself.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

Call = dict[str, Any]

PUNCTUATION = str.maketrans("", "", string.punctuation)
BETWEEN = re.compile(r"[\s,]*")


def score(text: str, context: Any) -> dict[str, float]:
    """Return the rewards of a document with a section of tool calls, of a response, or both, each in [0, 1]."""
    right = json.loads(context.files["calls.json"])
    called, rest = section(text, "tool_call")
    reply, rest = section(rest, "response")
    if called is None and reply is None:
        context.invalid("there is neither a <tool_call> nor a <response> section")
    calls, readable = read_calls(called or "")
    needed = bool(calls) if right else not calls and bool((reply or "").strip())
    names, keys, values = compare(calls, right)
    tidy = needed and readable and not rest.strip()
    return {"format": float(tidy), "tool_name": names, "arg_key": keys, "arg_value": values}


def section(text: str, tag: str) -> tuple[str | None, str]:
    """Return what stands in the first pair of tags, None where there is none, and the text without the pair."""
    before, opened, after = text.partition(f"<{tag}>")
    inside, closed, after = after.partition(f"</{tag}>")
    return (inside, before + after) if opened and closed else (None, text)


def read_calls(text: str) -> tuple[list[Call], bool]:
    """Return the tool calls that can be read, one JSON object after the other or a list, and whether that was all."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    calls: list[Call] = []
    place = _next(text, 0)
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return calls, False
        for call in value if isinstance(value, list) else [value]:
            if not (isinstance(call, dict) and isinstance(call.get("name"), str)):
                return calls, False
            if call.keys() != {"name", "parameters"} or not isinstance(call["parameters"], dict):
                return calls, False
            calls.append(call)
        place = _next(text, place)
    return calls, True


def compare(calls: list[Call], right: list[Call]) -> tuple[float, float, float]:
    """Return the F1 of the names, the mean F1 of the parameters' names, and the mean share of their right values.

    The means are over pairs of calls; one without a partner counts 0. Values count by the parameters of the right call.
    """
    if not calls and not right:
        return 1.0, 1.0, 1.0
    names = f1((plain(call["name"]) for call in calls), (plain(call["name"]) for call in right))
    open_calls, keys, values = list(calls), 0.0, 0.0
    for right_call in right:
        if not open_calls:
            break
        call = max(open_calls, key=lambda each: _likeness(each, right_call))
        open_calls.remove(call)
        actual, expected = call["parameters"], right_call["parameters"]
        keys += f1(actual, expected)
        matches = [match(actual[key], value) for key, value in expected.items() if key in actual]
        values += sum(matches) / len(expected) if expected else 1.0
    pairs = max(len(calls), len(right))
    return names, keys / pairs, values / pairs


def match(answer: Any, right: Any) -> float:
    """Return how well a value matches: words of texts by F1, lists by their items, objects by keys, others exactly."""
    if isinstance(right, bool) or isinstance(answer, bool):
        return float(answer is right)
    if isinstance(right, int | float):
        return float((_number(answer) if isinstance(answer, str) else answer) == right)
    if isinstance(right, list):
        return f1(map(plain, answer if isinstance(answer, list) else [answer]), map(plain, right))
    if isinstance(right, dict):
        return f1(answer, right) if isinstance(answer, dict) else 0.0
    if isinstance(right, str) and isinstance(answer, str):
        return f1(plain(answer).split(), plain(right).split())
    return float(plain(answer) == plain(right))


def f1(answers: Iterable[str], right: Iterable[str]) -> float:
    """Return the F1 of two collections in which things may be repeated; 1 where both are empty."""
    a, b = Counter(list(answers)), Counter(list(right))
    return 2 * (a & b).total() / (a.total() + b.total()) if a or b else 1.0


def plain(value: Any) -> str:
    """Return a value as text without case and punctuation, unless nothing else is in it."""
    text = str(value).lower()
    return " ".join(text.translate(PUNCTUATION).split()) or text.strip()


def _likeness(call: Call, right: Call) -> tuple[bool, int]:
    return plain(call["name"]) == plain(right["name"]), len(call["parameters"].keys() & right["parameters"].keys())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _next(text: str, place: int) -> int:
    match = BETWEEN.match(text, place)
    return match.end() if match else place


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
