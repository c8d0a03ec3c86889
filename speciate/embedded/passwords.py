"""The servers' passwords: generated once, stored in a file that only the owner can read."""

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from speciate.embedded.errors import EmbeddedServerError
from speciate.embedded.placement import write_private

_FILE = "passwords.json"


@dataclass(frozen=True, repr=False)
class Passwords:
    """Passwords of PostgreSQL and Valkey; URL-safe, so they need no quoting in an address."""

    postgres: str
    valkey: str


def load_or_create(data_dir: Path, *, cluster_exists: bool) -> Passwords:
    """Return the passwords in `data_dir`, generated on the first start; `EmbeddedServerError` if they are lost or
    damaged.
    """
    path = data_dir / _FILE
    try:
        fields = json.loads(path.read_text())
        return Passwords(str(fields["postgres"]), str(fields["valkey"]))
    except (ValueError, KeyError, TypeError):
        raise EmbeddedServerError(
            f"{path} does not hold the two passwords. Restore the file, or start on an empty directory with --data-dir."
        ) from None
    except FileNotFoundError:
        if cluster_exists:
            raise EmbeddedServerError(
                f"{path} is missing, and the database beside it needs its password. "
                "Restore the file, or start on an empty directory with --data-dir."
            ) from None
    passwords = Passwords(secrets.token_urlsafe(24), secrets.token_urlsafe(24))
    write_private(path, json.dumps(asdict(passwords)))
    return passwords
