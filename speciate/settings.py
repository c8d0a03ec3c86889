"""Where the settings come from: flags over a TOML file over the environment (``SPECIATE_*``)."""

from __future__ import annotations

import os
import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from speciate.domain.errors import ConfigurationError
from speciate.domain.values import WEB_ADDRESS
from speciate.domain.wording import wording

CONFIG_VARIABLE = "SPECIATE_CONFIG"

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
            # The address is not repeated: it may hold a password.
            raise ValueError(f"is no address of {server}: expected {form}")
        return url

    return AfterValidator(check)


def _absolute(path: Path) -> Path:
    # Once, here: our processes and the servers work in directories of their own.
    return path.expanduser().absolute()


def default_data_dir() -> Path:
    """Return ``$XDG_DATA_HOME/speciate``, by default ``~/.local/share/speciate``."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "speciate"


class Settings(BaseSettings):
    """The effective settings. Secrets are masked wherever the object is shown.

    Attributes:
        database_url: PostgreSQL (≥ 15) as SQLAlchemy names it; None means the embedded server.
        database_direct_url: The same database past a pooler such as pgbouncer; set, it says that ``database_url`` leads
            through a pooler in transaction mode: nothing is prepared there, locks of a session are taken here.
        redis_url: Redis or Valkey; None means the embedded server.
        data_dir: Where embedded servers keep their data, logs and passwords; always absolute.
        host: Address that the API listens on.
        port: Port that the API listens on.
        url: Where clients find the API; by default host and port above.
        policy_url: Where policies of kind ``embedded`` are asked; None means the server that ``speciate up`` starts.
        token: Bearer token that the API demands; without one it listens on loopback only.
        sandbox: Containment of candidates: ``auto`` picks the strongest tier that holds.
        evaluate_slots: Evaluations that run at once; 0 means one per core.
        generate_slots: Policy requests that wait at once.
        lease_s: Seconds after which work of a silent worker is given to another.
        drain_s: Seconds that a worker told to stop has for what it does; the rest is handed back at once.
        leave_s: Seconds that the API, told to stop, still answers while it reports itself as not ready.
        retain_days: Days after their end that runs keep their programs and prompts; None keeps them for ever.
        max_body_bytes: Largest request body.
        min_free_bytes: Runs are paused when the embedded servers' disk has less left.
    """

    model_config = SettingsConfigDict(env_prefix="SPECIATE_", extra="forbid", frozen=True)
    env_prefix: ClassVar[str] = "SPECIATE_"

    database_url: Annotated[SecretStr, _address_of("PostgreSQL")] | None = None
    database_direct_url: Annotated[SecretStr, _address_of("PostgreSQL")] | None = None
    redis_url: Annotated[SecretStr, _address_of("Redis or Valkey")] | None = None
    data_dir: Annotated[Path, AfterValidator(_absolute)] = Field(
        default_factory=default_data_dir, validate_default=True
    )
    host: str = "127.0.0.1"
    port: int = Field(default=8420, ge=0, le=65535)
    url: str | None = None
    policy_url: Annotated[str, Field(pattern=WEB_ADDRESS)] | None = None
    token: SecretStr | None = None
    sandbox: Literal["auto", "A", "B", "unsafe"] = "auto"
    evaluate_slots: int = Field(default=0, ge=0, le=1024)
    generate_slots: int = Field(default=8, ge=1, le=1024)
    lease_s: float = Field(default=30.0, ge=1, le=3600)
    drain_s: float = Field(default=8.0, ge=0, le=3600)
    leave_s: float = Field(default=3.0, ge=0, le=300)
    retain_days: float | None = Field(default=None, gt=0)
    max_body_bytes: int = Field(default=16 << 20, ge=1 << 16)
    min_free_bytes: int = Field(default=256 << 20, ge=0)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave flags (with the file's values below them) and the environment."""
        return init_settings, env_settings

    @property
    def slots(self) -> int:
        """Evaluations that run at once."""
        return self.evaluate_slots or len(os.sched_getaffinity(0))

    @property
    def base_url(self) -> str:
        """Where clients find the API."""
        return (self.url or f"http://{self.host}:{self.port}").rstrip("/")


def load_settings(**flags: Any) -> Settings:
    """Return the effective settings; a flag that is None was not given.

    Raises:
        ConfigurationError: A value or the configuration file cannot be used; the message names it.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    path = os.environ.get(CONFIG_VARIABLE)
    try:
        return Settings(**{**(_read(Path(path)) if path else {}), **given})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(
            f"setting {name!r}: {wording(first)}.",
            remedy=f"Set it by flag, in the file named by {CONFIG_VARIABLE}, or as SPECIATE_{name.upper()}.",
        ) from None


def check_exposure(settings: Settings) -> None:
    """Refuse to serve other machines without a token.

    Raises:
        ConfigurationError: The address is not loopback and there is no token.
    """
    if settings.token is None and not is_loopback(settings.host):
        raise ConfigurationError(
            f"the API would listen on {settings.host} without asking for a token.",
            remedy="Set SPECIATE_TOKEN to a long random text (`openssl rand -hex 32`), or listen on 127.0.0.1.",
        )
    if settings.token is not None and not settings.token.get_secret_value():
        raise ConfigurationError("SPECIATE_TOKEN is empty.", remedy="Give it a long random text, or unset it.")


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address means this machine only."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{CONFIG_VARIABLE} names {path}, which cannot be read: {error.strerror}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: {error}.", remedy="Expected a TOML file of settings.") from None


def source_of(name: str, flags: dict[str, Any]) -> str:
    """Return where an effective setting came from: ``flag``, ``file``, ``environment`` or ``default``."""
    path = os.environ.get(CONFIG_VARIABLE)
    if flags.get(name) is not None:
        return "flag"
    if path and name in _read(Path(path)):
        return "file"
    return "environment" if f"SPECIATE_{name.upper()}" in {key.upper() for key in os.environ} else "default"
