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


def test_hundreds_of_texts_in_one_batch(broker, lengths):
    texts = [str(list(range(i))) for i in range(300)]
    results = broker.evaluate(lengths, texts, seeds=[0] * 300)
    assert [e.rewards for e in results] == [(float(i),) for i in range(300)]
    assert results[2].artifacts == {"length": "6"}
    assert {e.tier for e in results} == {broker.tier}


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
def test_a_bad_text_fails_alone(broker, lengths, text, kind, reason):
    before, bad, after = broker.evaluate(lengths, ["[1]", text, "[1, 2]"], seeds=[0] * 3)
    assert before.rewards == (1.0,)
    assert bad.failure is not None
    assert (bad.failure.kind, bad.failure.reason) == (kind, reason)
    assert after.rewards == (2.0,)


def test_nothing_of_a_text_is_executed(broker, lengths, tmp_path):
    text = f"open({str(tmp_path / 'made')!r}, 'w')"
    (evaluation,) = broker.evaluate(lengths, [text], seeds=[0])
    assert evaluation.failure is not None
    assert not list(tmp_path.iterdir())


def test_each_text_has_its_own_seed(broker, make_problem):
    script = "import random\ndef score(text, context):\n    return {'score': random.random()}\n"
    problem = make_problem("data", evaluator=script)
    first, same, other = broker.evaluate(problem, ["a", "b", "c"], seeds=[1, 1, 2])
    assert first.rewards == same.rewards != other.rewards
