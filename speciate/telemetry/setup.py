"""Setting up logs and traces of a process, from its settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from speciate.settings import Settings
from speciate.telemetry import logs, tracing


def configure_telemetry(settings: Settings, service: str) -> None:
    """Have this process log and trace as its settings say.

    Args:
        settings: The effective settings.
        service: What the process is called in traces.
    """
    logs.configure(form=settings.log_format, level=settings.log_level, secrets=_secrets(settings))
    # Libraries warn on standard error, too, where every line is to be one of ours.
    logging.captureWarnings(True)
    tracing.configure(settings.otlp_endpoint, service)


def _secrets(settings: Settings) -> Iterator[str]:
    """Return every secret of the settings; of an address also its password alone, as written and as meant."""
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            text = value.get_secret_value()
            yield text
            if "://" in text and (password := urlsplit(text).password):
                yield from (password, unquote(password))
