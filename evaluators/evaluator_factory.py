"""Open an evaluator in the strongest sandbox tier that works on this machine, or in the configured tier."""

import logging
from pathlib import Path

from evaluators.build_cache import BuildCache
from evaluators.canary import probe_tier
from evaluators.contained.unsafe import NAME as UNSAFE
from evaluators.environments import EnvironmentStore
from evaluators.evaluator import SandboxEvaluator
from evaluators.tiers.launch import TIERS
from evaluators.toolchains import Toolchains
from speciate.domain.errors import ConfigurationError, EvaluatorUnavailableError
from speciate.settings import Settings

AUTO = "auto"

UNSAFE_WARNING = (
    "SPECIATE_SANDBOX=unsafe: candidates are NOT contained. They run with your user, files and network. "
    "Every evaluation is stamped with tier 'unsafe'."
)

_NEEDS = (
    "Tier A needs bubblewrap and user namespaces, tier B a kernel with Landlock (Linux 5.13 or newer);"
    " `speciate doctor` lists the available features. SPECIATE_SANDBOX=unsafe runs candidates without a sandbox: use it"
    " only for programs that you trust."
)

_log = logging.getLogger(__name__)


def open_environments(settings: Settings) -> EnvironmentStore:
    return EnvironmentStore(
        settings.data_dir / "environments", max_bytes=settings.environments_bytes, max_days=settings.environments_days
    )


def open_toolchains(settings: Settings) -> Toolchains:
    for folder in settings.toolchains:
        if not (folder / "bin").is_dir() or folder == Path("/"):
            raise ConfigurationError(
                f"setting 'toolchains': {folder} is no installation on this machine.",
                remedy="Name folders that contain a folder `bin`, such as ~/.rustup/toolchains/stable-….",
            )
    return Toolchains(settings.toolchains)


def open_evaluator(tier_name: str = AUTO, settings: Settings | None = None) -> SandboxEvaluator:
    """Return an evaluator in a tier, with ``auto`` the strongest that passes its attacks; raises if none does."""
    if tier_name == UNSAFE:
        _log.warning(UNSAFE_WARNING)
        return _evaluator(UNSAFE, settings)
    if tier_name != AUTO and tier_name not in TIERS:
        raise ConfigurationError(
            f"Unknown evaluator tier {tier_name!r}.",
            remedy=f"Set SPECIATE_SANDBOX to one of: auto, {', '.join(TIERS)}.",
        )
    refused = []
    for tier in TIERS if tier_name == AUTO else (tier_name,):
        if tier == UNSAFE:
            continue
        verdict = probe_tier(tier)
        if verdict.holds:
            return _evaluator(tier, settings)
        refused.append(verdict)
    reasons = "; ".join(f"tier {verdict.tier}: {', '.join(verdict.breaches).rstrip('.')}" for verdict in refused)
    remedies = dict.fromkeys(verdict.remedy for verdict in refused if verdict.remedy)
    raise EvaluatorUnavailableError(
        f"No sandbox tier works on this machine ({reasons}).",
        remedy=" ".join([*remedies, _NEEDS] if len(refused) > 1 or not remedies else remedies),
    )


def _evaluator(tier: str, settings: Settings | None) -> SandboxEvaluator:
    if settings is None:
        return SandboxEvaluator(tier)
    return SandboxEvaluator(
        tier,
        environments=open_environments(settings),
        toolchains=open_toolchains(settings),
        builds=BuildCache(settings.data_dir / "builds", max_bytes=settings.builds_bytes),
    )
