"""The evaluator of MuSiQue problems: this file, word for word, is the author's script that scores answers.

Nothing but the standard library is imported, since the script has to run by itself.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

HOPS = 4
PUNCTUATION = str.maketrans("", "", string.punctuation)


def score(text: str, context: Any) -> dict[str, float]:
    """Return the rewards of a document with the lines ``support: 3, 7`` and ``answer: …``, each in [0, 1].

    A hop that the question does not have counts as supported. Only the first four numbers count, so that naming all
    paragraphs earns nothing. A document without an answer is invalid, whatever it supports.
    """
    reference = json.loads(context.files["question.json"])
    answer = line(text, "answer")
    if not answer:
        context.invalid("there is no line 'answer: …'")
    named = list(dict.fromkeys(map(int, re.findall(r"\d{1,6}", line(text, "support")))))[:HOPS]
    supported = [float(number in named) for number in reference["support"]]
    supported += [1.0] * (HOPS - len(supported))
    rewards = {f"hop_{i + 1}": value for i, value in enumerate(supported)}
    return rewards | {"answer_f1": max(f1(answer, right) for right in reference["answers"])}


def line(text: str, name: str) -> str:
    """Return what follows a name and a colon in the first line that begins with them; empty where there is none."""
    for each in text.splitlines():
        head, colon, rest = each.partition(":")
        if colon and head.strip().lower() == name:
            return rest.strip()
    return ""


def f1(answer: str, right: str) -> float:
    """Return the F1 of the words of two texts, without case, articles and punctuation."""
    a, b = words(answer), words(right)
    if not a or not b:
        return float(a == b)
    shared = sum((Counter(a) & Counter(b)).values())
    return 2 * shared / (len(a) + len(b))


def words(text: str) -> Sequence[str]:
    """Return the words of a text that count."""
    return [word for word in text.lower().translate(PUNCTUATION).split() if word not in ("a", "an", "the")]
