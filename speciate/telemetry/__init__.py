"""Configure the logs and traces of a process from its settings."""

import logging
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from speciate.settings import Settings
from speciate.telemetry import logs, tracing


def configure_telemetry(settings: Settings, service: str) -> None:
    """Configure the logs and traces of this process, whose name in traces is ``service``."""
    logs.configure(form=settings.log_format, level=settings.log_level, secrets=_secrets(settings))
    # Warnings of libraries go to standard error, where every line must have the format of a log.
    logging.captureWarnings(True)
    tracing.configure(settings.otlp_endpoint, service)


def _secrets(settings: Settings) -> Iterator[str]:
    """Yield every secret of the settings. A URL also yields its password, as written and decoded."""
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            text = value.get_secret_value()
            yield text
            if "://" in text and (password := urlsplit(text).password):
                yield from (password, unquote(password))
