"""The evaluator of EUREQA problems: this file, word for word, is the author's script that scores answers.

Nothing but the standard library is imported, since the script has to run by itself.
"""

import json
import string
from typing import Any

PUNCTUATION = str.maketrans("", "", string.punctuation)


def score(text: str, context: Any) -> dict[str, float]:
    """Return which entities a document with lines such as ``A: Robert Rodriguez`` names, 1 or 0 each."""
    entities = json.loads(context.files["entities.json"])
    answers: dict[str, str] = {}
    for line in text.splitlines():
        letter, colon, name = line.partition(":")
        if colon and letter.strip().upper() in entities:
            answers.setdefault(letter.strip().upper(), plain(name))
    if not any(answers.values()):
        context.invalid("there is no line such as 'A: name'")
    return {f"entity_{letter}": float(answers.get(letter) == plain(name)) for letter, name in entities.items()}


def plain(name: str) -> str:
    """Return a name without case, articles, punctuation and underscores, unless nothing else is in it (The The)."""
    words = name.replace("_", " ").lower().translate(PUNCTUATION).split()
    return " ".join(word for word in words if word not in ("a", "an", "the")) or name.strip().lower()
