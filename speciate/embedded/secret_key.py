"""The secret key of an embedded service: generated once, stored in the data directory, readable only by the owner."""

import secrets
from typing import Final

from pydantic import SecretStr

from speciate.domain.errors import ConfigurationError
from speciate.egress.sealing import VARIABLE, split_keys
from speciate.embedded.placement import write_private
from speciate.settings import Settings

FILE: Final = "secret.key"


def with_own_secret_key(settings: Settings, *, make: bool = True) -> Settings:
    """Return settings with the data directory's secret key, unless they contain one; `make` generates a missing key."""
    if settings.secret_key is not None:
        return settings
    path = settings.data_dir / FILE
    if make and not path.exists():
        write_private(path, secrets.token_hex(32) + "\n", replace=False)  # another command may be first
    if not path.exists():
        return settings
    try:
        text = path.read_text().strip()
        split_keys(text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the secret key in {path} cannot be used: {error.strerror if isinstance(error, OSError) else error}.",
            remedy=f"Restore it from its backup, or set {VARIABLE}. Without it you must store sealed keys again.",
        ) from None
    return settings.model_copy(update={"secret_key": SecretStr(text)})
