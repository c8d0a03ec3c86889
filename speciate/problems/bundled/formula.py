"""Score a formula against a law of physics, region by region of the input space."""

import ast
import hashlib
import json
import math
import random

EXACT_DIGITS = 12.0
FAR_OFF_DIGITS = -6.0


def evaluate(candidate, context):
    """Return the number of correct digits in each region and elsewhere, and the size of the program.

    A region where the formula fails (a division by zero, an overflow) counts as a million times off; a program that
    fails in every region is a failure.
    """
    regions = json.loads(context.files["points.json"])
    replies = {name: candidate.call("predict", region["inputs"]) for name, region in regions.items()}
    if all(reply.failure for reply in replies.values()):
        next(iter(replies.values())).unwrap()
    rewards = {}
    for name, reply in replies.items():
        truth = regions[name]["outputs"]
        rewards[f"digits_{name}"] = FAR_OFF_DIGITS if reply.failure else right_digits(reply.value, truth, context)
        if reply.failure:
            context.note(name, reply.failure.detail or f"failed: {reply.failure.reason}")
    inputs, truth = points_elsewhere(candidate.source, context.files["law.py"])
    reply = candidate.call("predict", inputs)
    rewards["digits_elsewhere"] = FAR_OFF_DIGITS if reply.failure else right_digits(reply.value, truth, context)
    return {**rewards, "size": float(size_of(candidate.source))}


def points_elsewhere(source, law):
    """Return points between and beyond the regions, and their true values; they differ for every program.

    A table of the regions' values fits into a short program. Points that depend on the program's text make such a
    table useless.
    """
    made = {"__name__": "law"}
    exec(law, made)  # noqa: S102  # a file of the problem
    digest = hashlib.sha256(source.encode(errors="surrogatepass")).digest()
    rng = random.Random(digest)  # noqa: S311  # points are to be the same whenever the program is scored
    inputs = made["sample"](rng, *made["EVERYWHERE"])
    return inputs, [made["law"](*point) for point in inputs]


def right_digits(values, truth, context):
    """Return the mean number of correct digits over a region: minus the logarithm of the relative error."""
    if not isinstance(values, list) or len(values) != len(truth):
        context.invalid(f"predict: expected a list of {len(truth)} numbers, one for each point")
    if not all(type(value) in (int, float) and abs(value) <= 1e300 for value in values):
        context.invalid("predict: expected finite numbers")
    return math.fsum(digits(value, true) for value, true in zip(values, truth, strict=True)) / len(truth)


def digits(value, true):
    """Return the correct digits of one value, from -6 (a million times off) over 0 (off by its own size) to 12."""
    error = abs(value - true) / abs(true)
    return min(EXACT_DIGITS, max(FAR_OFF_DIGITS, -math.log10(error))) if error > 0 else EXACT_DIGITS


def size_of(source):
    """Return the size of a program: its syntax nodes, plus one for every ten characters of text in it."""
    nodes = list(ast.walk(ast.parse(source)))
    texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    return sum(isinstance(node, ast.expr | ast.stmt) for node in nodes) + sum(len(text) // 10 for text in texts)
