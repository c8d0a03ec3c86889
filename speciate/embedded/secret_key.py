"""The secret key of an embedded service: made once, kept in the data directory where only the owner can read it."""

import os
import secrets
from typing import Final

from pydantic import SecretStr

from speciate.settings import Settings

FILE: Final = "secret.key"


def with_own_secret_key(settings: Settings, *, make: bool = True) -> Settings:
    """Return settings with the data directory's secret key, unless they have one.

    Args:
        settings: The effective settings.
        make: Whether to make it where there is none yet.
    """
    if settings.secret_key is not None:
        return settings
    path = settings.data_dir / FILE
    if make and not path.exists():
        # Renamed into place: a start that is killed here leaves no half-written file.
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    if not path.exists():
        return settings
    return settings.model_copy(update={"secret_key": SecretStr(path.read_text().strip())})
