"""Conformance suite for policy clients: inherit ``PolicyClientConformance`` in a pytest class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Prompt
from speciate.ports.policy import PolicyClient, SampleRequest

_PROGRAM = "def solve(x):\n    y = 0.5 * x + 0.25\n    return y if x > 3 else -y\n"


class PolicyClientConformance(ABC):
    """The suite.

    Attributes:
        deterministic: True if equal seeds give equal completions.
        varied: True if different seeds give different completions.
    """

    deterministic: ClassVar[bool] = True
    varied: ClassVar[bool] = True

    @abstractmethod
    def make_client(self) -> PolicyClient:
        """Return a working client."""

    def request(self, seed: int, n: int = 2, role: PolicyRole = PolicyRole.MUTATE) -> SampleRequest:
        """Return a request; suites of clients that need another prompt override this."""
        parents = (Individual(1, _PROGRAM, (1.0,)), Individual(2, _PROGRAM.replace("0.5", "0.75"), (0.5,)))
        return SampleRequest(
            prompt=Prompt("Improve the program.", f"Program number {seed}: é → ∞\n{_PROGRAM}"),
            role=role,
            n=n,
            seed=seed,
            parents=parents if role is PolicyRole.MUTATE else (),
            seed_program=_PROGRAM,
        )

    def test_no_requests_give_no_results(self) -> None:
        """A call without requests returns an empty list."""
        assert self.make_client().sample([]) == []

    def test_every_request_is_answered_with_at_most_n_completions(self) -> None:
        """Every request gets one result with one to n completions, in both roles."""
        client = self.make_client()
        for role in (PolicyRole.PROPOSE, PolicyRole.MUTATE):
            requests = [self.request(seed, n, role) for seed, n in ((1, 1), (2, 4), (3, 2))]
            results = client.sample(requests)
            assert len(results) == len(requests)
            for request, result in zip(requests, results, strict=True):
                assert 1 <= len(result.completions) <= request.n

    def test_results_stand_in_the_order_of_requests(self) -> None:
        """Results do not depend on the other requests of a call, and keep their order."""
        if self.deterministic:
            client = self.make_client()
            requests = [self.request(seed) for seed in range(12)]
            alone = [client.sample([request])[0].completions for request in requests]
            assert [result.completions for result in client.sample(requests)] == alone
            assert [result.completions for result in client.sample(requests[::-1])] == alone[::-1]

    def test_equal_seeds_give_equal_completions(self) -> None:
        """Another instance gives the same answer to the same seed, so that runs can be replayed."""
        if self.deterministic:
            first, second = (self.make_client().sample([self.request(7)])[0] for _ in range(2))
            assert first.completions == second.completions

    def test_seeds_make_a_difference(self) -> None:
        """Twelve seeds give more than one answer."""
        if self.varied:
            results = self.make_client().sample([self.request(seed) for seed in range(12)])
            assert len({result.completions for result in results}) > 1

    def test_the_token_ceiling_holds(self) -> None:
        """No request costs more than its token ceiling, and no number is negative."""
        client = self.make_client()
        requests = [self.request(seed, n) for seed, n in ((1, 1), (2, 8), (3, 3))]
        for request, result in zip(requests, client.sample(requests), strict=True):
            assert 0 <= result.tokens <= client.token_ceiling(request)
            assert all(completion.tokens >= 0 for completion in result.completions)

    def test_global_randomness_is_left_alone(self) -> None:
        """NumPy's global generator is neither used nor changed."""
        client = self.make_client()
        before = np.random.get_state(legacy=False)  # noqa: NPY002 - the generator under test
        first = client.sample([self.request(5)])[0].completions
        assert str(np.random.get_state(legacy=False)) == str(before)  # noqa: NPY002
        np.random.random()  # noqa: NPY002
        if self.deterministic:
            assert client.sample([self.request(5)])[0].completions == first

    def test_ping_says_one_line(self) -> None:
        """``ping`` of a working client returns one line."""
        said = self.make_client().ping()
        assert said
        assert "\n" not in said
