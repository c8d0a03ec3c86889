"""``speciate secrets``, and how commands read a secret: from files, pipes or the keyboard, never from arguments."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from speciate.cli import output
from speciate.cli.session import AsJson, DataDir, examples, noun
from speciate.domain.errors import InvalidInputError

app = noun("Secrets that the service keeps sealed: keys of policies, secrets of webhooks.")


@app.callback()
def _group() -> None:
    """Secrets that the service keeps sealed: keys of policies, secrets of webhooks."""


def read_secret(source: str, what: str) -> str:
    """Return the secret of a file; ``-`` asks for it without showing it, or reads what is piped in.

    Raises:
        InvalidInputError: The file cannot be read, or there is nothing in it.
    """
    try:
        if source != "-":
            secret = Path(source).read_text().strip()
        elif sys.stdin.isatty():
            secret = getpass.getpass(f"{what}: ").strip()
        else:
            secret = sys.stdin.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidInputError(f"{source} cannot be read: {reason}.") from None
    if not secret:
        raise InvalidInputError(f"{what}: nothing was given.")
    return secret


@app.command("renew", epilog=examples("SPECIATE_SECRET_KEY=new,old speciate secrets renew"))
def renew(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Seal everything anew by the first of the secret keys; afterwards the others can be dropped.

    Speaks with the database of SPECIATE_DATABASE_URL, or of the `speciate up` that runs here.
    """
    from speciate.cli.attached import attached_stores

    with attached_stores(data_dir) as stores:
        number = stores.policy_keys.renew() + stores.webhooks.renew()
    if as_json:
        output.json_line({"renewed": number})
    else:
        output.say(f"Sealed by the first key: {output.many(number, 'secret')}.")
