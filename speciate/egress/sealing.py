"""Seal secrets that must be readable again, such as the API key of a policy's endpoint, and sign exports.

``SPECIATE_SECRET_KEY`` seals them (Fernet: AES-128-CBC with HMAC-SHA256). It is never stored in the database, so a
database dump reveals nothing. With several keys the first one seals and all of them open. To rotate, put the new key in
front, seal everything again, and drop the old key. The first key also gives the key pair that signs, which is stored
nowhere: a new first key is a new signature.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from speciate.domain.errors import UnavailableError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

VARIABLE: Final = "SPECIATE_SECRET_KEY"
SHORTEST: Final = 32
"""Minimum length of a secret key, in characters: a shorter one could be guessed."""


def split_keys(text: str) -> tuple[str, ...]:
    """Return the secret keys of a comma-separated text; the message of a ``ValueError`` does not repeat them."""
    keys = tuple(part.strip() for part in text.replace("\n", ",").split(",") if part.strip())
    if not keys or any(len(key) < SHORTEST for key in keys):
        raise ValueError(f"expected one or several keys of at least {SHORTEST} characters, separated by commas")
    return keys


class SecretKeyError(UnavailableError, slug="secret-key", title="The secret key is missing or a different one"):
    """A secret cannot be sealed or opened: the secret key is missing or a different one."""


class Sealer:
    """Seal and open secrets. Neither the object nor its errors show a secret.

    The keys are at least 32 random characters each; the first one seals. Without keys every operation fails.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._fernet: MultiFernet | None = None
        if keys:  # imported here: most commands seal nothing, and it takes as long to load as they run
            from cryptography.fernet import Fernet, MultiFernet

            sealing = [_derived(key, b"speciate: sealing") for key in keys]
            self._fernet = MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in sealing])
        self._signing_seed = _derived(keys[0], b"speciate: signing") if keys else None

    @property
    def keyless(self) -> bool:
        return self._fernet is None

    def seal(self, purpose: str, secret: str) -> str:
        """Return the sealed form of a secret, which opens only for the same purpose, such as ``policy:ID``."""
        return self._of_keys(purpose).encrypt(f"{purpose}\n{secret}".encode()).decode()

    def open(self, purpose: str, sealed: str) -> str:
        """Return the secret; ``SecretKeyError`` if no key opens it or it was sealed for another purpose."""
        from cryptography.fernet import InvalidToken

        try:
            text = self._of_keys(purpose).decrypt(sealed.encode()).decode()
        except InvalidToken:
            text = ""
        sealed_for, _, secret = text.partition("\n")
        if sealed_for != purpose:
            raise SecretKeyError(
                f"the secret of {purpose} does not open with the {VARIABLE} of this process.",
                remedy=f"Append the key that sealed it to the current one ({VARIABLE}=new,old), or store it again.",
            )
        return secret

    def opens(self, purpose: str, sealed: str) -> bool:
        try:
            self.open(purpose, sealed)
        except SecretKeyError:
            return False
        return True

    def renew(self, purpose: str, sealed: str) -> str:
        """Return a stored secret sealed by the first key. Raises as ``open`` does."""
        return self.seal(purpose, self.open(purpose, sealed))

    def signing_key(self) -> Ed25519PrivateKey:
        """Return the key that signs exports; ``SecretKeyError`` without a key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if self._signing_seed is None:
            raise _keyless("exports cannot be signed")
        return Ed25519PrivateKey.from_private_bytes(self._signing_seed)

    def _of_keys(self, purpose: str) -> MultiFernet:
        if self._fernet is None:
            raise _keyless(f"the secret of {purpose} cannot be stored or read")
        return self._fernet


def _keyless(what: str) -> SecretKeyError:
    return SecretKeyError(
        f"{what} without {VARIABLE}.",
        remedy=f"Give every API, generate and control process the same {VARIABLE} or {VARIABLE}_FILE"
        " (`openssl rand -hex 32`); `speciate up` creates its own.",
    )


def _derived(key: str, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(key.encode())
