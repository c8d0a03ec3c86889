"""Verify by log-probabilities that an endpoint samples from the trained weights.

Names, paths and digests say what a server was told to serve, not what it computes: adapters that are silently unused,
reloaded under an old name or mixed with another one's prefix cache answer without an error. So a few prompts are
continued greedily, and the likeliest tokens are compared with those that the trainer stored (``domain.policy.Probe``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from speciate.domain.policy import Probe, Trace
from speciate.policies.numbers import read_number

POSITIONS: Final = 8
"""Tokens of a continuation."""
TOPS: Final = 5
"""Likeliest tokens that are requested; some servers report no more."""
TOLERANCE: Final = 0.2
"""Nats per token by which a continuation may differ. Measured for SmolLM2-135M on six prompts: bfloat16 differs from
float32 by .064 in the mean and .080 at most, whatever the batch, and the bundled server from torch by 1e-5."""
_PART: Final = (0.1, 0.95)
"""Shares of the trained change that mean a part of it."""
_LEAST_COSINE: Final = 0.65
"""Cosine between a change and the trained one that means the same direction; of random changes it is up to .6."""


class Verdict(Enum):
    OK = ("the trained weights", "")
    UNCHANGED = (
        "weights that the training changed too little to tell: the adapter changes nothing",
        "Train longer or with a higher learning rate, and check that the adapter was saved.",
    )
    BASE = ("the base: base answers under this name", "Load the adapter, and request it by its own name.")
    PART = (
        "a part of the trained change: an older version, or the adapter with another scale",
        "Load the adapter again under a new name: servers keep what they loaded first.",
    )
    CACHE = (
        "the trained weights for some prompts only: another adapter's prefix cache",
        "Restart the server, or switch its prefix cache off.",
    )
    OTHER = ("other weights", "Serve the checkpoint whose manifest the policy was registered with.")


@dataclass(frozen=True, slots=True)
class Verification:
    verdict: Verdict
    trained: tuple[float, ...]
    """Distance from the trained weights for each prompt, in nats per token."""
    base: tuple[float, ...]
    """Distance from the base."""

    @property
    def said(self) -> str:
        trained, base = max(self.trained), max(self.base)
        distance = f"{trained:.3f} nats per token from the trained weights, {base:.3f} from the base"
        return f"{self.verdict.value[0]} ({distance})"


Ask = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Send the body of a completion request; return the response, or None if it is refused."""


def verify(probe: Probe, model: str, others: Sequence[str], ask: Ask) -> Verification | None:
    """Verify a model; None if its endpoint reports no log-probabilities.

    The first prompts are first sent to ``others``, other models of the server, so that a prefix cache which mixes them
    up answers these prompts wrongly and the rest rightly.
    """
    for prompt, other in zip(probe.prompts[:-1], others, strict=False):
        ask(_request(other, prompt))
    seen = [_read(ask(_request(model, prompt))) for prompt in probe.prompts]
    reported = tuple(positions for positions in seen if positions)
    return judged(probe, reported) if len(reported) == len(probe.prompts) else None


def judged(probe: Probe, reported: Trace) -> Verification:
    trained, base = (_distances(reported, trace) for trace in (probe.trained, probe.base))
    return Verification(_verdict(probe, reported, trained, base), trained, base)


def _verdict(probe: Probe, reported: Trace, trained: Sequence[float], base: Sequence[float]) -> Verdict:
    if max(trained) <= TOLERANCE and max(_distances(probe.trained, probe.base)) <= TOLERANCE:
        return Verdict.UNCHANGED
    if max(trained) <= TOLERANCE and sum(trained) < sum(base):
        return Verdict.OK
    if max(base) <= TOLERANCE:
        return Verdict.BASE
    if min(trained) <= TOLERANCE and _separate(probe, trained):
        return Verdict.CACHE
    share, cosine = _share(probe, reported)
    return Verdict.PART if _PART[0] < share < _PART[1] and cosine > _LEAST_COSINE else Verdict.OTHER


def _separate(probe: Probe, trained: Sequence[float]) -> bool:
    """Return True if a prompt that the training changed much is answered as trained: no part of a change does that."""
    changed = _distances(probe.trained, probe.base)
    return any(near <= TOLERANCE / 2 and moved > 2 * TOLERANCE for near, moved in zip(trained, changed, strict=True))


def _distances(reported: Trace, stored: Trace) -> tuple[float, ...]:
    """Return the mean difference of log-probabilities for each prompt, up to where the continuations part."""
    return tuple(_distance(now, then) for now, then in zip(reported, stored, strict=True))


def _distance(reported: Sequence[Mapping[str, float]], stored: Sequence[Mapping[str, float]]) -> float:
    differences: list[float] = []
    for now, then in zip(reported, stored, strict=False):
        least = min(then.values())  # of a token that is not stored only a bound is known
        differences += [abs(value - then[t]) if t in then else max(0.0, value - least) for t, value in now.items()]
        if max(now, key=now.__getitem__) != max(then, key=then.__getitem__):
            break
    return float(np.mean(differences))


def _share(probe: Probe, reported: Trace) -> tuple[float, float]:
    """Return the share of the trained change in the answers, and the cosine between their change and that one."""
    rows = [
        (now[token] - before[token], after[token] - before[token])
        for (now, *_), (after, *_), (before, *_) in zip(reported, probe.trained, probe.base, strict=True)
        for token in now.keys() & after.keys() & before.keys()
    ]
    if len(rows) < len(probe.prompts):
        return 0.0, 0.0
    seen, whole = np.array(rows).T
    product, size = float(seen @ whole), max(float(whole @ whole), 1e-12)
    return product / size, product / max(float(np.sqrt(size * (seen @ seen))), 1e-12)


def _request(model: str, prompt: str) -> dict[str, Any]:
    return {"model": model, "prompt": prompt, "max_tokens": POSITIONS, "temperature": 0.0, "logprobs": TOPS}


def _read(response: Mapping[str, Any] | None) -> tuple[dict[str, float], ...]:
    try:
        positions = (response or {})["choices"][0]["logprobs"]["top_logprobs"]
        read = [{str(t): read_number(value) for t, value in each.items()} for each in positions]
    except (KeyError, IndexError, TypeError, AttributeError):
        return ()
    finite = [{token: value for token, value in each.items() if value is not None} for each in read]
    return tuple(finite) if all(finite) else ()
