"""Check that the secret key decrypts the sealed secrets of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from sqlalchemy.exc import ProgrammingError

from speciate.cli.doctor.findings import Finding, Status, error_finding
from speciate.domain.errors import SpeciateError, UnavailableError
from speciate.egress.sealing import VARIABLE
from speciate.embedded.secret_key import FILE, with_own_secret_key
from speciate.local.servers import has_server_announcement, with_server_addresses
from speciate.settings import Settings
from speciate.storage.stores import open_stores

_NAME: Final = "secret key"
_MAX_NAMED: Final = 5
"""Secrets listed by name; further ones are counted."""


def check_local_key(settings: Settings) -> Iterator[Finding]:
    """Check the key of this environment or data directory against the database, if it is reachable."""
    try:
        own = with_own_secret_key(settings, make=False)
        # Without configured servers and without a service there are no secrets to check.
        if (settings.database_url and settings.redis_url) or has_server_announcement(settings):
            with closing(open_stores(with_server_addresses(settings))) as stores:
                secrets = stores.secrets.check()
            in_data_dir = own.secret_key is not None and settings.secret_key is None
            key = f"the key in {settings.data_dir / FILE}" if in_data_dir else VARIABLE
            yield _finding(_NAME, key, secrets.opened, secrets.unopened, len(secrets.unopened), keyless=secrets.keyless)
    except UnavailableError as error:
        # The state of the servers is another check.
        yield error_finding(_NAME, Status.WARNING, error)
    except ProgrammingError:
        yield Finding(_NAME, Status.WARNING, "the database schema is outdated", "Run `speciate migrate`.")
    except SpeciateError as error:
        yield error_finding(_NAME, Status.BAD, error)


def key_finding(open_: int, no_key: int, other_key: int) -> Finding:
    key = f"the API's {VARIABLE}"
    return _finding("service's secret key", key, open_, (), no_key + other_key, keyless=no_key > 0)


def _finding(name: str, key: str, opens: int, shut: Sequence[str], number: int, *, keyless: bool) -> Finding:
    if not number:
        return Finding(name, Status.GOOD, f"decrypts all {opens} sealed secrets" if opens else "no sealed secrets yet")
    named = ", ".join(shut[:_MAX_NAMED]) + (f" and {number - _MAX_NAMED} more" if shut[_MAX_NAMED:] else "")
    which = f": {named}" if named else " (policy keys, webhook secrets)"
    if keyless:
        detail = f"{key} is not set, but {number} sealed secrets require it{which}"
        remedy = f"Set {VARIABLE} or {VARIABLE}_FILE to that key for all API, generate and control processes."
    else:
        detail = f"{key} does not decrypt {number} of {opens + number} sealed secrets{which}"
        remedy = f"Append the key that sealed them ({VARIABLE}=new,old), then run `speciate secrets renew`."
    again = " If that key is lost, add the policy keys again, and remove and re-create the webhooks."
    return Finding(name, Status.BAD, detail, remedy + again)
