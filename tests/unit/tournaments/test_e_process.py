"""The e-process against its definition, and its false positive rate when inspected after every problem."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from speciate.tournaments.statistics.e_process import STAKES, e_process
from tests.unit.tournaments.simulated import differences

DIFFERENCES = st.lists(st.integers(-8, 8).map(lambda x: x / 8), min_size=1, max_size=40)


def test_wealth_is_the_mean_over_stakes_of_the_product_of_bets() -> None:
    seen = e_process([0.5, -0.25, 0.0, 1.0])
    for sign, path in ((1, seen.log_a), (-1, seen.log_b)):
        for t in range(1, 5):
            products = [
                math.prod(math.exp(sign * s * d) / math.cosh(s * d) for d in (0.5, -0.25, 0.0, 1.0)[:t]) for s in STAKES
            ]
            assert math.exp(path[t - 1]) == pytest.approx(np.mean(products), rel=1e-12)
    assert seen.e_value == pytest.approx((math.exp(seen.log_a[-1]) + math.exp(seen.log_b[-1])) / 2)


@given(DIFFERENCES.filter(lambda d: len(d) <= 6))
def test_the_bet_is_fair_over_all_signs(sizes: list[float]) -> None:
    n = len(sizes)
    signs = 2.0 * (np.arange(1 << n)[:, None] >> np.arange(n) & 1) - 1.0
    wealth = [math.exp(e_process(row * np.abs(sizes)).log_a[-1]) for row in signs]
    assert np.mean(wealth) == pytest.approx(1.0, abs=1e-9)


@given(DIFFERENCES, st.randoms(use_true_random=False))
def test_the_last_value_depends_on_the_set_only_and_is_symmetric(values: list[float], source: st.DataObject) -> None:
    shuffled = list(values)
    source.shuffle(shuffled)  # type: ignore[attr-defined]
    first, again = e_process(values), e_process(shuffled)
    assert first.e_value == pytest.approx(again.e_value, rel=1e-9)
    assert np.array_equal(e_process(-np.array(values)).log_a, first.log_b)


@given(DIFFERENCES, st.integers(1, 40))
def test_a_resumed_tournament_has_the_same_path(values: list[float], seen: int) -> None:
    whole, part = e_process(values), e_process(values[:seen])
    assert np.allclose(whole.log_a[: len(part.log_a)], part.log_a, rtol=0, atol=1e-12)
    if part.stopped_at is not None:
        assert whole.stopped_at == part.stopped_at
        assert whole.better == part.better


def test_it_stops_at_forty_and_names_the_better() -> None:
    better = e_process(np.full(30, 0.25))
    assert better.threshold == 40.0
    assert better.stopped_at is not None
    assert math.exp(better.log_a[better.stopped_at - 1]) >= 40 > math.exp(better.log_a[better.stopped_at - 2])
    assert better.better == "a"
    assert e_process(np.full(30, -0.25)).better == "b"
    assert e_process([0.0] * 30).better is None
    assert e_process([0.0] * 30).e_value == pytest.approx(1.0)


def test_wealth_cannot_overflow() -> None:
    seen = e_process(np.ones(5000))
    assert math.isfinite(seen.e_value)
    assert np.isfinite(seen.log_b).all()


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_peeking_after_every_problem_keeps_the_false_positives_under_five_percent(spread: float) -> None:
    rng = np.random.default_rng(40)
    stopped = [e_process(differences(rng, spread=spread)).stopped_at is not None for _ in range(2000)]
    assert np.mean(stopped) <= 0.055


def test_peeking_at_p_values_does_not() -> None:
    rng = np.random.default_rng(40)
    paths = np.stack([differences(rng) for _ in range(1000)])
    looks = np.arange(5, paths.shape[1] + 1)
    means = np.cumsum(paths, axis=1)[:, looks - 1] / looks
    variances = np.cumsum(paths**2, axis=1)[:, looks - 1] / looks - means**2
    t = means / np.sqrt(np.maximum(variances, 1e-12) / (looks - 1))
    assert np.mean((2 * stats.t.sf(np.abs(t), looks - 1) <= 0.05).any(axis=1)) >= 0.2


def test_a_real_effect_stops_it_early() -> None:
    rng = np.random.default_rng(41)
    stops = [e_process(differences(rng, shift=1.0)) for _ in range(200)]
    assert np.mean([s.better == "a" for s in stops]) >= 0.9
    assert np.median([s.stopped_at for s in stops if s.stopped_at]) <= 25
    assert not any(s.better == "b" for s in stops)
