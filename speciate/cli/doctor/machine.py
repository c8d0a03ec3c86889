"""Checks of this machine: Python, settings, servers, data directory and sandbox."""

import difflib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Final

import sqlalchemy as sa
from pydantic import SecretStr

from evaluators.canary import probe_tier
from evaluators.evaluator_factory import UNSAFE_WARNING, open_evaluator, open_toolchains
from evaluators.features import kernel_features
from evaluators.tiers.launch import TIERS
from speciate.cli.doctor.findings import Finding, Status, error_finding, judged, secret_key_finding
from speciate.cli.local_service import check_redis
from speciate.domain.capabilities import PYTHON_ONLY, TIER_REMEDY
from speciate.domain.errors import SpeciateError
from speciate.egress.sealing import VARIABLE
from speciate.embedded.binaries import find_postgres, find_valkey
from speciate.embedded.errors import DataDirectoryBusyError
from speciate.embedded.secret_key import with_own_secret_key
from speciate.embedded.shared import SharedPostgres
from speciate.policies.prices import PRICES_VARIABLE
from speciate.settings import CONFIG_VARIABLE, FILE_SUFFIX, SERVE_TOKEN_VARIABLE, UNSAFE, Settings, source_of
from speciate.storage.access.secrets import SealedSecrets
from speciate.storage.database import check_version, connect
from speciate.storage.migrate import NEWER_REMEDY, NEWEST_REVISION, check_schema, current_revision

_SERVER_VARIABLES: Final = ("SPECIATE_POSTGRES_BIN", "SPECIATE_POSTGRES_USER", "SPECIATE_VALKEY_BIN")
_COMPOSE_VARIABLES: Final = ("SPECIATE_VERSION", "SPECIATE_BIND", "SPECIATE_SECRETS")
_OTHER_VARIABLES: Final = (CONFIG_VARIABLE, PRICES_VARIABLE, *_SERVER_VARIABLES, *_COMPOSE_VARIABLES)
MIN_FREE_BYTES: Final = 1 << 30


def effective_settings(settings: Settings, flags: dict[str, Any]) -> list[dict[str, str]]:
    """Return name, value and source of every setting; a secret, or a URL that contains a password, is masked."""
    return [
        {"name": name, "value": _shown(getattr(settings, name)), "source": source_of(name, flags)}
        for name in Settings.model_fields
    ]


def python() -> Finding:
    return Finding("python", Status.GOOD, ".".join(map(str, sys.version_info[:3])))


def training() -> Iterator[Finding]:
    """Yield the versions of torch, with its GPU, and of vLLM, if they are installed."""
    if find_spec("torch"):
        import torch

        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
        yield Finding("torch", Status.GOOD, f"{torch.__version__}, {gpu}")
    if find_spec("vllm"):
        yield Finding("vllm", Status.GOOD, metadata.version("vllm"))


def environment() -> Finding:
    values = [*(f"SPECIATE_{name.upper()}" for name in Settings.model_fields), SERVE_TOKEN_VARIABLE]
    names = [*values, *(value + FILE_SUFFIX for value in values), *_OTHER_VARIABLES]
    unknown = sorted(name for name in os.environ if name.upper().startswith("SPECIATE_") and name.upper() not in names)
    if not unknown:
        return judged("environment", "all SPECIATE_* variables are known")
    nearest = [each for name in unknown for each in difflib.get_close_matches(name.upper(), names, n=1)]
    remedy = f"Did you mean {', '.join(nearest)}?" if nearest else f"Known variables: {', '.join(values)}."
    return judged("environment", f"unknown variable: {', '.join(unknown)}", remedy)


def data_dir(settings: Settings) -> Finding:
    """Check that the data directory is writable and has free space."""
    path = settings.data_dir
    existing = next(parent for parent in (path, *path.absolute().parents) if os.path.exists(parent))  # noqa: PTH110 - False in a folder of another user
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("data", Status.BAD, f"{path} is not writable", "Set SPECIATE_DATA_DIR to another directory.")
    free = shutil.disk_usage(existing).free
    detail = f"{path}, {free / 2**30:.1f} GiB free"
    return judged("data", detail, "Free disk space: runs pause when the disk is full." if free < MIN_FREE_BYTES else "")


def secret_key(settings: Settings) -> Iterator[Finding]:
    """Check that the secret key decrypts the secrets of the database; an embedded one is started for it."""
    if settings.database_url is None and not os.path.lexists(settings.data_dir / "postgres"):
        return
    postgres = SharedPostgres(settings.data_dir)
    try:
        settings = with_own_secret_key(settings, make=False)
        url = postgres.start() if settings.database_url is None else settings.database_url.get_secret_value()
        with _connected(url) as engine:
            if current_revision(engine) == NEWEST_REVISION:
                check = SealedSecrets(engine, settings.sealer).check()
                unopened = len(check.unopened)
                counts = (unopened, 0) if check.keyless else (0, unopened)
                yield secret_key_finding(check.opened, *counts, of=VARIABLE)
    except DataDirectoryBusyError:
        return  # a service starts or ends
    except SpeciateError as error:
        yield error_finding("secret key", Status.BAD, error)
    finally:
        postgres.stop()


def sandbox(settings: Settings) -> tuple[list[Finding], str | None]:
    """Check kernel features and sandbox tiers by attacks; return also the tier that candidates run in, if any."""
    findings = [Finding("kernel", Status.GOOD, kernel_features())]
    findings += [_check_tier(tier, settings) for tier in TIERS if tier != UNSAFE]
    finding, tier = _selected_tier(settings)
    return [*findings, finding], tier


def languages(settings: Settings, tier: str | None) -> Finding:
    """List the languages in which this machine can build and run candidates in a tier."""
    try:
        installed = list(open_toolchains(settings).languages())
    except SpeciateError as error:
        return error_finding("languages", Status.BAD, error)
    present = "; ".join(["Python", *(f"{each.name} ({each.version})" for each in installed if not each.problem)])
    missing = "; ".join(f"{each.name}: {each.problem}" for each in installed if each.problem)
    if tier == PYTHON_ONLY and present != "Python":
        detail = f"Python only: other languages need sandbox tier A. Installed: {present}"
        return judged("languages", detail, f"{TIER_REMEDY}.")
    return judged("languages", f"{present}. Not available: {missing}" if missing else present)


def engines() -> Finding:
    """List the engines that run container images on this machine."""
    from evaluators.images.engine import engines as examine

    engines = examine()
    present = "; ".join(f"{each.name} {each.version}" for each in engines if not each.problem)
    missing = "; ".join(f"{each.name}: {each.problem}" for each in engines if each.problem)
    detail = present or "none, which problems with an `image` need"
    return judged("container engines", f"{detail}. Not available: {missing}" if missing else detail)


def postgres(settings: Settings) -> Finding:
    """Check PostgreSQL: the configured server and its schema, or the programs of the embedded one."""
    if settings.database_url is None:
        programs = find_postgres()
        return judged("postgres", f"embedded, PostgreSQL {programs.version} in {programs.bin_dir}")
    with _connected(settings.database_url.get_secret_value()) as engine:
        detail = f"configured, PostgreSQL {check_version(engine)}"
        check_schema(revision := current_revision(engine))
        return judged("postgres", f"{detail}, schema {revision}", NEWER_REMEDY if revision != NEWEST_REVISION else "")


@contextmanager
def _connected(url: str) -> Iterator[sa.Engine]:
    engine = connect(url, pool_size=2)
    try:
        yield engine
    finally:
        engine.dispose()


def redis(settings: Settings) -> Finding:
    if settings.redis_url is None:
        return judged("redis", f"embedded, {find_valkey()}")
    info = check_redis(settings.redis_url.get_secret_value())
    version = info.get("valkey_version") or info.get("redis_version")
    return judged("redis", f"configured, {info.get('server_name', 'redis')} {version}")


def _check_tier(tier: str, settings: Settings) -> Finding:
    verdict = probe_tier(tier)
    name = f"sandbox {tier}"
    if verdict.holds:
        return Finding(name, Status.GOOD, "contained every canary attack")
    # One working tier is enough, unless the settings request this one.
    status = Status.BAD if settings.sandbox == tier else Status.WARNING
    return Finding(name, status, ", ".join(verdict.breaches), verdict.remedy)


def _selected_tier(settings: Settings) -> tuple[Finding, str | None]:
    if settings.sandbox == UNSAFE:
        return judged("sandbox", UNSAFE_WARNING, "Unset SPECIATE_SANDBOX."), UNSAFE
    try:
        with closing(open_evaluator(settings.sandbox)) as evaluator:
            return judged("sandbox", f"candidates run in tier {evaluator.tier}"), evaluator.tier
    except SpeciateError as error:
        return error_finding("sandbox", Status.BAD, error), None


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "********" if isinstance(value, SecretStr) else str(value)
