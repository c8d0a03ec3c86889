"""Which tier contains candidates on this machine: the strongest that holds, or the one that was asked for."""

from __future__ import annotations

import logging

from evaluators.broker import Broker
from evaluators.canary import TierProbe, probe_tier
from evaluators.tiers import TIERS, UNSAFE
from speciate.domain.errors import ConfigurationError, EvaluatorUnavailableError

AUTO = "auto"

UNSAFE_WARNING = (
    "SPECIATE_SANDBOX=unsafe: candidates are NOT contained. They run with your user, files and network. "
    "Every evaluation is stamped with tier 'unsafe'."
)

_NEEDS = (
    "Tier A needs bubblewrap and user namespaces, tier B a kernel with Landlock (Linux 5.13 or newer);"
    " `speciate doctor` tells what is there. SPECIATE_SANDBOX=unsafe runs candidates uncontained: only for programs"
    " that you trust."
)

_log = logging.getLogger(__name__)


def open_broker(wanted: str = AUTO) -> Broker:
    """Return a broker in the strongest tier that holds, or in the one that is wanted.

    Args:
        wanted: ``auto``, the name of a tier, or ``unsafe``.

    Raises:
        ConfigurationError: There is no such tier.
        EvaluatorUnavailableError: No tier holds, or the wanted one does not.
    """
    if wanted == UNSAFE:
        _log.warning(UNSAFE_WARNING)
        return Broker(UNSAFE)
    if wanted != AUTO and wanted not in TIERS:
        raise ConfigurationError(
            f"There is no evaluator tier {wanted!r}.",
            remedy=f"Set SPECIATE_SANDBOX to one of: auto, {', '.join(TIERS)}.",
        )
    refused = []
    for tier in TIERS if wanted == AUTO else (wanted,):
        if tier == UNSAFE:
            continue
        verdict = probe_tier(tier)
        if verdict.holds:
            return Broker(tier)
        refused.append(verdict)
    raise EvaluatorUnavailableError(_why(refused), remedy=_remedy(refused))


def _why(refused: list[TierProbe]) -> str:
    reasons = "; ".join(f"tier {verdict.tier}: {', '.join(verdict.breaches).rstrip('.')}" for verdict in refused)
    return f"Candidates cannot be contained here ({reasons})."


def _remedy(refused: list[TierProbe]) -> str:
    known = dict.fromkeys(verdict.remedy for verdict in refused if verdict.remedy)
    return " ".join([*known, _NEEDS] if len(refused) > 1 or not known else known)
