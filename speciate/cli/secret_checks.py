"""What ``speciate doctor`` says of the secret key: whether what the database keeps sealed opens with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from sqlalchemy.exc import ProgrammingError

from speciate.cli.attached import attached, ended_without_notice
from speciate.cli.checks import Finding, Status, failed
from speciate.domain.errors import SpeciateError, UnavailableError
from speciate.egress.secret_keys import VARIABLE
from speciate.embedded.secret_key import FILE, with_own_secret_key
from speciate.settings import Settings
from speciate.storage.stores import open_stores

_NAME: Final = "secret key"
_MOST: Final = 5
"""Secrets that are named; of more there is a number."""


def of_this_machine(settings: Settings) -> Iterator[Finding]:
    """Look at the key of this environment or data directory, and try it on the database if one can be reached."""
    try:
        own = with_own_secret_key(settings, make=False)
        # Without configured servers and without a service there is nothing whose secrets could be tried.
        if (settings.database_url and settings.redis_url) or ended_without_notice(settings):
            with closing(open_stores(attached(settings))) as stores:
                standing = stores.sealed.standing()
            at_hand = own.secret_key is not None and settings.secret_key is None
            key = f"the key in {settings.data_dir / FILE}" if at_hand else VARIABLE
            yield _finding(_NAME, key, standing.open, standing.shut, len(standing.shut), keyless=standing.keyless)
    except UnavailableError as error:
        # Whether the servers are well is another check's business.
        yield failed(_NAME, Status.WARNING, error)
    except ProgrammingError:
        yield Finding(_NAME, Status.WARNING, "the schema of the database is older", "Run `speciate migrate`.")
    except SpeciateError as error:
        yield failed(_NAME, Status.BAD, error)


def of_service(open_: int, no_key: int, other_key: int) -> Finding:
    """Say what an API process says of its own key.

    Args:
        open_: Sealed secrets that it opens.
        no_key: Those that it does not, having no key.
        other_key: Those that it does not, having another one.
    """
    key = f"the API's {VARIABLE}"
    return _finding("service's secret key", key, open_, (), no_key + other_key, keyless=no_key > 0)


def _finding(name: str, key: str, opens: int, shut: Sequence[str], number: int, *, keyless: bool) -> Finding:
    if not number:
        return Finding(name, Status.GOOD, f"opens all {opens} sealed secrets" if opens else "nothing is sealed yet")
    named = ", ".join(shut[:_MOST]) + (f" and {number - _MOST} more" if shut[_MOST:] else "")
    which = f": {named}" if named else " (keys of policies, webhooks)"
    if keyless:
        detail = f"{key} is not set, and {number} sealed secrets need it{which}"
        remedy = (
            f"Give every API, generate and control process the key that sealed them ({VARIABLE} or {VARIABLE}_FILE)."
        )
    else:
        detail = f"{number} of {opens + number} sealed secrets do not open with {key}{which}"
        remedy = (
            f"Put the key that sealed them after the present one ({VARIABLE}=new,old), then `speciate secrets renew`."
        )
    again = " If it is lost: hand in the keys of the policies again, remove the webhooks and add them again."
    return Finding(name, Status.BAD, detail, remedy + again)
