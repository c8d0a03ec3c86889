"""Load settings: flags override a TOML file, which overrides the environment (``SPECIATE_*``)."""

import json
import os
import shlex
import sys
import tomllib
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from speciate.domain.errors import ConfigurationError
from speciate.domain.suggestions import did_you_mean
from speciate.domain.validation import validation_message
from speciate.domain.values import IDENTIFIER, SLUG, WEB_ADDRESS
from speciate.egress.network import AllowedNetworks
from speciate.egress.sealing import Sealer, split_keys

CONFIG_VARIABLE = "SPECIATE_CONFIG"
FILE_SUFFIX: Final = "_FILE"
"""Suffix of a variable that names a file with the value."""
SERVE_TOKEN_VARIABLE: Final = "SPECIATE_SERVE_TOKEN"  # noqa: S105 - the name of a variable
"""Token of the inference server; not a setting, since the server also runs without the service."""
KEEP_ALIVE_S: Final = 75
"""Seconds for which our HTTP servers keep an idle connection: more than any client or proxy (httpx 5 s, nginx 60 s).

A server that gives up first may close a connection on which a request is on its way, which then gets no response.
"""
ANY_COMMAND: Final = "*"
"""Entry of ``agent_commands`` that allows every command."""
AGENT_KEYS: Final = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY"),
    *("OPENAI_BASE_URL", "CODEX_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY", "CURSOR_API_KEY"),
    *("AMP_API_KEY", "DASHSCOPE_API_KEY", "DEEPSEEK_API_KEY"),
)
"""Variables by which well-known agents log in; they receive them on the machine of their user."""
UNSAFE: Final = "unsafe"
"""The sandbox tier without containment."""
_SHORTEST_TOKEN: Final = 16
"""Characters of the operator's token, if other machines reach the API."""

_SERVERS: Final = {
    "PostgreSQL": ("postgresql://USER@HOST/DATABASE", {"postgresql", "postgresql+psycopg", "postgres"}),
    "Redis or Valkey": ("redis://HOST:PORT/NUMBER", {"redis", "rediss", "unix"}),
}


def _address_of(server: str) -> AfterValidator:
    form, schemes = _SERVERS[server]

    def check(url: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(url.get_secret_value())
            usable = parts.scheme in schemes and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            # The URL is not repeated: it may hold a password.
            raise ValueError(f"is not a URL of {server}: expected {form}")
        return url

    return AfterValidator(check)


def _absolute(path: Path) -> Path:
    # Resolved once, here: the other processes run in other directories.
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"{path} is below a home directory that is not known") from None


def _entries(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(json.loads(value) if value.startswith('["') else filter(None, value.split(",")))


def _plain(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if not isinstance(value, tuple):
        return str(value)
    texts = [*map(str, value)]
    return json.dumps(texts) if any("," in text for text in texts) else ",".join(texts)


def _days_or_never(days: float) -> float:
    if 0 < days < 1:
        raise ValueError("is less than a day: expected 0 (never) or at least 1")
    return days


def _commands(commands: tuple[str, ...]) -> tuple[str, ...]:
    for command in commands:
        try:
            shlex.split(command)
        except ValueError as error:
            raise ValueError(f"{command!r}: {error}") from None
    return commands


def _secret_keys(value: SecretStr) -> SecretStr:
    split_keys(value.get_secret_value())
    return value


def http_address(host: str, port: int) -> str:
    """Return the URL of a server that listens on a host and port; IPv6 addresses are put in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def default_data_dir() -> Path:
    """Return ``$XDG_DATA_HOME/speciate``, by default ``~/.local/share/speciate``."""
    base = os.environ.get("XDG_DATA_HOME")
    return Path(base or os.path.expanduser("~/.local/share")) / "speciate"  # noqa: PTH111 - it keeps the ~ of an unknown home


class Settings(BaseModel):
    """Effective settings. Secrets are masked wherever the object is shown."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
    env_prefix: ClassVar[str] = "SPECIATE_"

    database_url: Annotated[SecretStr, _address_of("PostgreSQL")] | None = None
    """SQLAlchemy URL of PostgreSQL (≥ 15); None means the embedded server."""
    database_direct_url: Annotated[SecretStr, _address_of("PostgreSQL")] | None = None
    """URL of the same database that bypasses a pooler such as pgbouncer. If set, ``database_url`` leads through a
    pooler in transaction mode: statements are not prepared there, and session locks use this URL."""
    redis_url: Annotated[SecretStr, _address_of("Redis or Valkey")] | None = None
    """URL of Redis or Valkey; None means the embedded server."""
    data_dir: Annotated[Path, AfterValidator(_absolute)] = Field(
        default_factory=default_data_dir, validate_default=True
    )
    """Directory for data, logs and passwords of the embedded servers; always absolute."""
    host: str = "127.0.0.1"
    """Address that the API listens on; any but loopback requires a long token."""
    port: int = Field(default=8420, ge=0, le=65535)
    """Port that the API listens on; 0 selects a free one."""
    url: str | None = None
    """URL of the API for clients; host and port above by default."""
    policy_url: Annotated[str, Field(pattern=WEB_ADDRESS)] | None = None
    """URL of the inference server, for policies of kind ``embedded``; None means the server that ``speciate up``
    starts."""
    token: SecretStr | None = None
    """The operator's bearer token; without one the API listens on loopback only, and is open there."""
    metrics_token: SecretStr | None = None
    """Token for ``/metrics`` only, for Prometheus; the operator's token reads it, too."""
    secret_key: Annotated[SecretStr, AfterValidator(_secret_keys)] | None = None
    """Key that seals stored secrets, such as API keys of policies. Of several keys, separated by commas, the first one
    seals and all of them open."""
    allowed_networks: Annotated[
        tuple[str, ...], BeforeValidator(_entries), AfterValidator(lambda entries: AllowedNetworks.of(entries).allowed)
    ] = ()
    """Non-public addresses that policies and webhooks may use: networks, addresses, host names, and the words
    ``loopback`` and ``private``."""
    agent_commands: Annotated[tuple[str, ...], BeforeValidator(_entries), AfterValidator(_commands)] = ()
    """Commands that policies of kind ``command`` may run here, exactly as registered, outside the sandbox; ``*`` allows
    every command to everyone who may register policies."""
    agent_environment: Annotated[tuple[Annotated[str, Field(pattern=IDENTIFIER)], ...], BeforeValidator(_entries)] = ()
    """Variables that these commands receive besides ``HOME``, ``PATH`` and the like."""
    project: Annotated[str, Field(pattern=SLUG, max_length=80)] | None = None
    """Project that clients use unless their token determines it."""
    rate_limit: float = Field(default=50.0, ge=0, le=10**6)
    """Requests per second and token; 0 means no limit."""
    rate_burst: int = Field(default=200, ge=1, le=10**6)
    """Requests that one token may send at once."""
    sandbox: Literal["auto", "A", "B", "unsafe"] = "auto"
    """Containment of candidates; ``auto`` picks the strongest tier that works."""
    evaluate_slots: int = Field(default=0, ge=0, le=1024)
    """Concurrent evaluations; 0 means one per core."""
    generate_slots: int = Field(default=8, ge=1, le=1024)
    """Batches for which policies are asked at once."""
    work_nice: int = Field(default=5, ge=0, le=19)
    """Niceness (0 to 19) of generate and evaluate workers, of candidates, and of the inference server, so that API and
    databases go first when CPUs are scarce."""
    lease_s: float = Field(default=30.0, ge=1, le=3600)
    """Seconds after which the work of an unresponsive worker goes to another."""
    rest_s: float = Field(default=60.0, ge=1, le=86_400)
    """Seconds without work after which processes give up what they keep for the next work: warm sandboxes, loaded
    models, connections to PostgreSQL."""
    drain_s: float = Field(default=8.0, ge=0, le=3600)
    """Seconds that a stopping worker has to finish its work; the rest is returned to the queue."""
    shutdown_delay_s: float = Field(default=3.0, ge=0, le=300)
    """Seconds that a stopping API still answers while it reports itself as not ready."""
    retain_days: float | None = Field(default=None, gt=0, le=36_525)
    """Days after its end that a run keeps its programs and prompts; None keeps them forever."""
    # A day at least: until then a run counts towards its project's daily quotas.
    purge_days: Annotated[float, AfterValidator(_days_or_never)] = Field(default=30.0, ge=0, le=36_525)
    """Days that deleted runs, problems and policies can be restored before they are removed; 0 keeps them forever."""
    audit_days: float = Field(default=400.0, ge=0, le=36_525)
    """Days that entries of the audit log are kept; 0 keeps them forever."""
    max_body_bytes: int = Field(default=16 << 20, ge=1 << 16)
    """Largest request body."""
    statement_s: float = Field(default=60.0, ge=0, le=86_400)
    """Timeout of the API's PostgreSQL statements in seconds; 0 means none. Workers have no timeout."""
    min_free_bytes: int = Field(default=256 << 20, ge=0)
    """Free disk space of the embedded servers below which runs are paused."""
    stall_s: float = Field(default=900.0, ge=1)
    """Seconds without a commit after which a running run counts as stalled."""
    checkpoints_dir: Annotated[Path, AfterValidator(_absolute)] | None = None
    """Folder of the policy versions that runs learn, shared by learn workers and inference server; None is
    ``checkpoints`` in the data directory."""
    environments_bytes: int = Field(default=20 << 30, ge=1 << 20)
    """Size limit of all installed environments of a machine."""
    environments_days: float = Field(default=30.0, gt=0, le=36_525)
    """Days after its last use that an environment is kept."""
    toolchains: Annotated[tuple[Annotated[Path, AfterValidator(_absolute)], ...], BeforeValidator(_entries)] = ()
    """Installations of compilers and interpreters outside ``/usr``, each a folder with ``bin``; candidates can read
    them."""
    builds_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Size limit of the compile cache of a machine."""
    log_format: Literal["text", "json"] = "text"
    """Lines of text, or one JSON object per line."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """Lowest level that is logged."""
    otlp_endpoint: Annotated[str, Field(pattern=WEB_ADDRESS)] | None = None
    """Endpoint for traces (OTLP over HTTP); None means no traces."""

    @model_validator(mode="before")
    @classmethod
    def _with_environment(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """Complete the arguments, flags and TOML file, with the environment and the files named in it."""
        variables = {name.lower(): value for name, value in os.environ.items()}
        names = {name: f"{cls.env_prefix}{name.upper()}" for name in cls.model_fields}
        in_files = {name: text for name, variable in names.items() if (text := in_file(variable)) is not None}
        set_directly = {name: value for name in names if (value := variables.get(names[name].lower())) is not None}
        return {**in_files, **set_directly, **arguments}

    @property
    def slots(self) -> int:
        """Number of concurrent evaluations; ``ConfigurationError`` where no program can run."""
        if sys.platform != "linux":
            raise ConfigurationError("programs run on Linux only.", remedy="Use Linux, WSL 2 or a virtual machine.")
        return self.evaluate_slots or len(os.sched_getaffinity(0))

    @property
    def checkpoints(self) -> Path:
        """Folder of the policy versions that runs learn."""
        return self.checkpoints_dir or self.data_dir / "checkpoints"

    @property
    def network(self) -> AllowedNetworks:
        """Networks that policies and webhooks may use."""
        return AllowedNetworks(self.allowed_networks)

    @property
    def sealer(self) -> Sealer:
        """Sealer of stored secrets."""
        return Sealer() if self.secret_key is None else Sealer(split_keys(self.secret_key.get_secret_value()))

    @property
    def base_url(self) -> str:
        """URL of the API for clients."""
        return (self.url or http_address(self.host, self.port)).rstrip("/")

    def as_environment(self) -> dict[str, str]:
        """Return the environment that gives another process these settings, with secrets in plain text."""
        return {f"{self.env_prefix}{name.upper()}": _plain(value) for name, value in self if value is not None}


def secret_variables() -> tuple[str, ...]:
    """Return the variables of the settings that hold secrets."""
    annotations = {name: str(field.annotation) for name, field in Settings.model_fields.items()}
    return tuple(f"{Settings.env_prefix}{name.upper()}" for name, kind in annotations.items() if "SecretStr" in kind)


def in_file(variable: str) -> str | None:
    """Return the text of the file that the variable ``…_FILE`` names; None if it is not set."""
    path = os.environ.get(f"{variable}{FILE_SUFFIX}")
    if not path:
        return None
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{variable}{FILE_SUFFIX} names {path}, which cannot be read: {reason}.") from None


def secret_of(variable: str) -> str | None:
    """Return a secret from the environment: a variable's value, or the text of the file that ``…_FILE`` names."""
    value = os.environ.get(variable)
    return in_file(variable) if value is None else value


def load_settings(**flags: Any) -> Settings:
    """Return the effective settings; flags that are None are ignored. An error names the value or file."""
    set_flags = {name: value for name, value in flags.items() if value is not None}
    path = os.environ.get(CONFIG_VARIABLE)
    try:
        return Settings(**{**(_read(Path(path)) if path else {}), **set_flags})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        variable = f"SPECIATE_{name.upper()}"
        remedy = f"Set it by flag, in {CONFIG_VARIABLE}'s file, as {variable}, or in {variable}{FILE_SUFFIX}'s file."
        if first["type"] == "extra_forbidden":
            remedy = did_you_mean(name, Settings.model_fields) or f"Known are: {', '.join(Settings.model_fields)}."
        raise ConfigurationError(f"setting {name!r}: {validation_message(first)}.", remedy=remedy) from None


def check_exposure(settings: Settings) -> None:
    """Refuse to serve other machines without a token that nobody can guess, or anybody with an empty one."""
    token = None if settings.token is None else settings.token.get_secret_value()
    if token == "":
        raise ConfigurationError("SPECIATE_TOKEN is empty.", remedy="Set it to a long random text, or unset it.")
    if len(token or "") < _SHORTEST_TOKEN and not is_loopback(settings.host):
        given = "without a token" if token is None else f"with a token of fewer than {_SHORTEST_TOKEN} characters"
        raise ConfigurationError(
            f"the API would listen on {settings.host} {given}.",
            remedy="Set SPECIATE_TOKEN to a long random text (`openssl rand -hex 32`), or listen on 127.0.0.1.",
        )


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return True if a host name or address denotes this machine only."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{CONFIG_VARIABLE} names {path}, which cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}.", remedy="Expected a TOML file of settings.") from None


def source_of(name: str, flags: dict[str, Any]) -> str:
    """Return the source of an effective setting: ``flag``, ``file``, ``environment`` or ``default``."""
    path = os.environ.get(CONFIG_VARIABLE)
    if flags.get(name) is not None:
        return "flag"
    if path and name in _read(Path(path)):
        return "file"
    variable = f"SPECIATE_{name.upper()}"
    return "environment" if {variable, variable + FILE_SUFFIX} & {key.upper() for key in os.environ} else "default"
