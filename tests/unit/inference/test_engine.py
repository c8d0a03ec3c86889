"""Batching: the composition of a batch does not change a completion, and every request completes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.generation import generate
from speciate.domain.errors import InvalidInputError, UnavailableError
from speciate.inference import Engine, GenerationRequest, SampledCompletion, SamplingParams
from tests.unit.inference.checkpoints import EOS, QWEN2, write

PROMPT = (3, 1, 4, 1, 5)


def assert_same(ones: list[SampledCompletion], others: list[SampledCompletion]) -> None:
    """Compare completions: equal tokens, and log-probabilities up to the rounding of float32.

    BLAS kernels for AVX2 round a row of a product by its place in the matrix, so the last bits are not promised.
    """
    for one, other in zip(ones, others, strict=True):
        assert (one.token_ids, one.finish_reason) == (other.token_ids, other.finish_reason)
        assert np.allclose(one.logprobs, other.logprobs, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("engine") / "m", QWEN2)


@pytest.fixture
def engine(folder: Path) -> Engine:
    return Engine.load(folder)


def test_a_completion_does_not_depend_on_the_rest_of_its_batch(folder: Path) -> None:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(1, 50, size).tolist() for size in rng.integers(1, 60, 40)]
    options = {"n": 3, "max_tokens": 60, "temperature": 0.9, "top_p": 0.95}
    together = generate(Engine.load(folder), prompts, **options)
    crowded = generate(Engine.load(folder, max_live=7), prompts, **options)
    alone = Engine.load(folder)
    for seed, prompt in enumerate(prompts):
        (one,) = generate(alone, [prompt], seeds=[seed], **options)
        assert_same(one, together[seed])
        assert_same(one, crowded[seed])


def test_more_completions_repeat_the_first_ones(engine: Engine) -> None:
    (few,), (many,) = generate(engine, [PROMPT], n=2), generate(engine, [PROMPT], n=9)
    assert_same(many[:2], few)
    assert len({each.token_ids for each in many}) > 1


def test_the_end_of_text_ends_a_completion(engine: Engine) -> None:
    (completions,) = generate(engine, [PROMPT], n=200, max_tokens=80, temperature=2.0)
    assert {each.finish_reason for each in completions} == {"stop", "length"}
    for each in completions:
        ended = each.finish_reason == "stop"
        assert (each.token_ids[-1] == EOS) == ended
        assert EOS not in each.token_ids[:-1]
        assert ended or len(each.token_ids) == 80
        assert len(each.logprobs) == len(each.token_ids)


def test_temperature_0_takes_the_likeliest(engine: Engine) -> None:
    request = GenerationRequest(PROMPT, SamplingParams(max_tokens=20, temperature=0.0, tops=3))
    engine.add(request)
    while not request.done:
        engine.step()
    sampled = request.sampled[0]
    for token, logprob, tops in zip(sampled.token_ids, sampled.logprobs, sampled.tops, strict=True):
        assert tops[0] == (token, logprob)
        assert [value for _, value in tops] == sorted((value for _, value in tops), reverse=True)
        assert len(tops) == 3


def test_cancelling_a_request_does_not_change_the_others(engine: Engine) -> None:
    (wanted,) = generate(engine, [PROMPT], n=5, max_tokens=30, seeds=[7])
    gone = GenerationRequest((9, 9), SamplingParams(n=200, max_tokens=90, temperature=0.1))
    kept = GenerationRequest(PROMPT, SamplingParams(n=5, max_tokens=30, seed=7))
    engine.add(gone)
    engine.add(kept)
    for _ in range(3):
        engine.step()
    assert engine.waiting
    gone.cancelled = True
    while not kept.done:
        engine.step()
    assert_same([kept.sampled[i] for i in range(5)], wanted)
    assert (engine.step(), engine.waiting) == ([], 0)


def test_waiting_sequences_are_counted_during_changes(engine: Engine) -> None:
    class Busy(GenerationRequest):
        """A request that adds another one to the engine while it is counted."""

        @property
        def params(self) -> SamplingParams:
            engine.add(GenerationRequest(PROMPT, SamplingParams()))
            return SamplingParams(n=3)

        @params.setter
        def params(self, _: SamplingParams) -> None: ...

    engine.add(Busy(PROMPT, SamplingParams()))
    assert engine.waiting == 3
    assert engine.waiting == 4


def test_little_memory_delays_requests_without_changing_them(folder: Path) -> None:
    small = generate(Engine.load(folder, memory_bytes=1 << 18), [PROMPT] * 20, max_tokens=20)
    large = generate(Engine.load(folder), [PROMPT] * 20, max_tokens=20)
    for one, other in zip(small, large, strict=True):
        assert_same(one, other)
    with pytest.raises(InvalidInputError, match="bytes: this server has 1000"):
        generate(Engine.load(folder, memory_bytes=1000), [PROMPT])


def test_short_requests_run_together_after_a_long_one(folder: Path) -> None:
    engine = Engine.load(folder, memory_bytes=1 << 20)

    def most_at_once() -> int:
        request = GenerationRequest(PROMPT, SamplingParams(n=64, max_tokens=8))
        engine.add(request)
        engine.step()
        live = engine._rows.live
        while not request.done:
            engine.step()
        return live

    before = most_at_once()
    generate(engine, [PROMPT], max_tokens=120)
    assert most_at_once() == before


def test_running_out_of_memory_is_reported_and_frees_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(engine._model, "decode", fail)
        with pytest.raises(UnavailableError, match="out of memory for m"):
            generate(engine, [PROMPT])
    assert (engine.step(), engine.waiting) == ([], 0)
    assert generate(engine, [PROMPT])


@pytest.mark.parametrize(
    ("prompt", "options", "words"),
    [
        ((), {}, "no tokens"),
        ((1, 50), {}, "not below 50"),
        ((1, -1), {}, "not below 50"),
        (PROMPT, {"max_tokens": 124}, "5 tokens and max_tokens is 124, 129 together: this model reads 128"),
    ],
)
def test_impossible_requests_are_refused(engine: Engine, prompt: tuple[int, ...], options: dict, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        generate(engine, [prompt], **options)


def test_the_longest_sequence_is_completed(engine: Engine) -> None:
    ((sampled,),) = generate(engine, [(1,) * 28], max_tokens=100, temperature=0.0)
    assert len(sampled.token_ids) == 100 or sampled.finish_reason == "stop"
