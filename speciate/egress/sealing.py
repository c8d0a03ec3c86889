"""Secrets that have to be read again, such as the key of a policy's endpoint: kept encrypted, opened when used.

``SPECIATE_SECRET_KEY`` seals (Fernet: AES-128-CBC with HMAC-SHA256). It is never in the database, so a dump of that
gives nothing away. Of several keys the first one seals and all of them open: a new one is put in front, everything is
sealed anew, and the old one is dropped.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from speciate.domain.errors import UnavailableError
from speciate.egress.secret_keys import VARIABLE


class SecretKeyError(UnavailableError):
    """A secret cannot be sealed or opened: there is no secret key, or another one."""

    slug = "secret-key"
    title = "The secret key is missing or another one"


class Sealer:
    """Seals and opens secrets. Neither it nor its errors ever show one.

    Args:
        keys: Secret keys, at least 32 random characters each; the first one seals. None means that nothing can be
            sealed or opened.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._fernet = MultiFernet([_fernet(key) for key in keys]) if keys else None

    @property
    def keyless(self) -> bool:
        """Whether nothing can be sealed or opened."""
        return self._fernet is None

    def seal(self, purpose: str, secret: str) -> str:
        """Return a secret as it is stored.

        Args:
            purpose: What it is for, such as ``policy:ID``; it opens for nothing else.
            secret: The secret.

        Raises:
            SecretKeyError: There is no secret key.
        """
        return self._of_keys(purpose).encrypt(f"{purpose}\n{secret}".encode()).decode()

    def open(self, purpose: str, sealed: str) -> str:
        """Return the secret.

        Raises:
            SecretKeyError: There is no secret key, or none of them sealed this, or it was sealed for something else.
        """
        try:
            text = self._of_keys(purpose).decrypt(sealed.encode()).decode()
        except InvalidToken:
            text = ""
        kept, _, secret = text.partition("\n")
        if kept != purpose:
            raise SecretKeyError(
                f"the secret of {purpose} does not open with the {VARIABLE} of this process.",
                remedy=f"Put the key that sealed it after the present one ({VARIABLE}=new,old), or store it again.",
            )
        return secret

    def opens(self, purpose: str, sealed: str) -> bool:
        """Tell whether ``open`` would return the secret."""
        try:
            self.open(purpose, sealed)
        except SecretKeyError:
            return False
        return True

    def renew(self, purpose: str, sealed: str) -> str:
        """Return a stored secret sealed by the first key. Raises as ``open`` does."""
        return self.seal(purpose, self.open(purpose, sealed))

    def _of_keys(self, purpose: str) -> MultiFernet:
        if self._fernet is None:
            raise SecretKeyError(
                f"the secret of {purpose} can be neither stored nor read without {VARIABLE}.",
                remedy=f"Give every API, generate and control process one {VARIABLE} or {VARIABLE}_FILE"
                " (`openssl rand -hex 32`); `speciate up` makes its own.",
            )
        return self._fernet


def _fernet(key: str) -> Fernet:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"speciate: sealing").derive(key.encode())
    return Fernet(base64.urlsafe_b64encode(derived))
