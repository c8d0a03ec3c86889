import pytest

from speciate.domain.candidate import FailureKind

SCORE = """
import json
def score(text, context):
    if text == "loop":
        while True: pass
    if text == "die":
        import os; os._exit(1)
    if text == "eat":
        bytearray(8 << 30)
    if text == "bad":
        context.invalid("not a route")
    if text == "nan":
        return {"score": float("nan")}
    context.note("length", len(text))
    return {"score": len(json.loads(text))}
"""


@pytest.fixture
def lengths(make_problem):
    return make_problem("data", evaluator=SCORE, limits={"wall_s": 1})


def test_hundreds_of_texts_in_one_batch(sandbox, lengths):
    texts = [str(list(range(i))) for i in range(300)]
    results = sandbox.evaluate(lengths, texts, seeds=[0] * 300)
    assert [e.rewards for e in results] == [(float(i),) for i in range(300)]
    assert results[2].artifacts == {"length": "6"}
    assert {e.tier for e in results} == {sandbox.tier}


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("loop", FailureKind.TIMEOUT, "evaluator_wall_limit"),
        ("die", FailureKind.CRASHED, "evaluator_exited"),
        ("eat", FailureKind.OUT_OF_MEMORY, "evaluator_raised"),
        ("bad", FailureKind.INVALID_OUTPUT, "refused_by_evaluator"),
        ("nan", FailureKind.INVALID_OUTPUT, "invalid_rewards"),
        ("{", FailureKind.INVALID_OUTPUT, "evaluator_raised"),
        ("", FailureKind.INVALID_OUTPUT, "evaluator_raised"),
    ],
)
def test_a_bad_text_fails_alone(sandbox, lengths, text, kind, reason):
    before, bad, after = sandbox.evaluate(lengths, ["[1]", text, "[1, 2]"], seeds=[0] * 3)
    assert before.rewards == (1.0,)
    assert bad.failure is not None
    assert (bad.failure.kind, bad.failure.reason) == (kind, reason)
    assert after.rewards == (2.0,)


HOSTILE = [
    "[" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000, "1" * 5000, "1e999", "NaN", "-Infinity", "null", "[[1]]",
    "1" * 4000, '"nan"', '"' + "a" * (4 << 20) + '"', "\0", "\ud800", "\x1b[31m1", "1\u202e", '{"a": 1}',
]  # fmt: skip


def test_hostile_texts_fail_alone_and_their_reports_can_be_stored(sandbox, make_problem):
    """The author's function trusts the text, scores by it and repeats it."""
    script = """
import json
def score(text, context):
    context.note(text[:50], text)
    return {"score": json.loads(text)}
"""
    texts = [part for hostile in HOSTILE for part in (hostile, "1")]
    results = sandbox.evaluate(make_problem("data", evaluator=script), texts, seeds=[0] * len(texts))
    assert [e.rewards for e in results[1::2]] == [(1.0,)] * len(HOSTILE)
    assert {e.rewards for e in results[::2]} == {None}
    assert {e.failure.kind for e in results[::2]} == {FailureKind.INVALID_OUTPUT}
    for evaluation in results:
        report = [evaluation.failure.detail if evaluation.failure else "", *evaluation.artifacts.values()]
        assert all("\0" not in text and len(text.encode()) < 1 << 20 for text in [*report, *evaluation.artifacts])


AUTHOR_SENDS = """
import json, os
def send(body):
    os.write(3, len(body).to_bytes(4, "big") + body)
def score(text, context):
    exec(text)
    return {"score": 1}
"""


@pytest.mark.parametrize(
    "act",
    [
        "send(b'[')",
        "send(b'\\xff\\xfe')",
        "send(b'{}')",
        "os.write(3, b'\\xff' * 4)",
        "send(b'{\"rewards\": [1]}')",
        'send(b\'{"rewards": {"score": 1e999}}\')',
        'send(b\'{"rewards": {"score": \' + b"9" * 4000 + b"}}")',
        "send(b'{\"raised\": 5}')",
        'send(b\'{"failed": {"kind": "cancelled", "reason": "", "detail": ""}}\')',
        'send(b\'{"call": "x", "args": [], "timeout_s": null}\')',
        "os.close(3)",
        "raise SystemExit(0)",
        "raise GeneratorExit",
        "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})",
    ],
)
def test_what_an_author_s_script_does_to_its_channel_is_one_failure(sandbox, make_problem, act):
    problem = make_problem("data", evaluator=AUTHOR_SENDS)
    bad, after = sandbox.evaluate(problem, [act, "0"], seeds=[0, 0])
    assert bad.failure is not None
    assert after.rewards == (1.0,)


def test_nothing_of_a_text_is_executed(sandbox, lengths, tmp_path):
    text = f"open({str(tmp_path / 'made')!r}, 'w')"
    (evaluation,) = sandbox.evaluate(lengths, [text], seeds=[0])
    assert evaluation.failure is not None
    assert not list(tmp_path.iterdir())


def test_each_text_has_its_own_seed(sandbox, make_problem):
    script = "import random\ndef score(text, context):\n    return {'score': random.random()}\n"
    problem = make_problem("data", evaluator=script)
    first, same, other = sandbox.evaluate(problem, ["a", "b", "c"], seeds=[1, 1, 2])
    assert first.rewards == same.rewards != other.rewards
