"""What ``speciate doctor`` says of the sandbox of this machine, where the evaluators are installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from evaluators.canary import examine
from evaluators.choose import UNSAFE_WARNING, open_broker
from evaluators.features import kernel_features
from evaluators.tiers import TIERS
from speciate.cli.checks import Finding, Status, finding_of
from speciate.settings import UNSAFE, Settings


def sandbox(settings: Settings) -> Iterator[Finding]:
    """Attack every tier, look at what the kernel offers, and say which tier candidates run in."""
    yield Finding("kernel", Status.GOOD, kernel_features())
    yield from (_try_tier(tier, settings) for tier in TIERS if tier != UNSAFE)
    yield _chosen_sandbox(settings)


def _try_tier(tier: str, settings: Settings) -> Finding:
    verdict = examine(tier)
    name = f"sandbox {tier}"
    if verdict.holds:
        return Finding(name, Status.GOOD, "every attack of the canary was contained")
    # One tier that holds is enough, unless this very one is asked for.
    status = Status.BAD if settings.sandbox == tier else Status.WARNING
    return Finding(name, status, ", ".join(verdict.flaws), verdict.remedy)


def _chosen_sandbox(settings: Settings) -> Finding:
    if settings.sandbox == UNSAFE:
        return Finding("sandbox", Status.WARNING, UNSAFE_WARNING, "Unset SPECIATE_SANDBOX.")
    return finding_of("sandbox", lambda: _try_sandbox(settings))


def _try_sandbox(settings: Settings) -> str:
    with closing(open_broker(settings.sandbox)) as broker:
        return f"candidates run in tier {broker.tier}"
