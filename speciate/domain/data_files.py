"""Contents of data files: texts, or bytes as a ``data:`` URL (RFC 2397), since definitions are JSON."""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from speciate.domain.errors import InvalidFieldError

BINARY: Final = "data:;base64,"
"""Beginning of a content that is not text."""


def content_of(data: bytes) -> str:
    """Return the content of a file; bytes that are not UTF-8 text become a URL."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    # A text that begins like a URL would be read as one, and JSON in PostgreSQL holds no NUL.
    return BINARY + base64.b64encode(data).decode("ascii") if "\0" in text or text.startswith(BINARY) else text


def bytes_of(content: str) -> bytes:
    """Return the bytes of a content; raises ``ValueError`` if the URL holds no valid base64."""
    if not content.startswith(BINARY):
        # Keep surrogates, which a program may contain: the reader of the file rejects them.
        return content.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(content[len(BINARY) :], validate=True)
    except binascii.Error as error:
        raise ValueError(f"is no valid base64 after {BINARY!r}: {error}") from None


def check_data_files(files: Mapping[str, str]) -> None:
    """Raise ``InvalidFieldError`` for an invalid content, and for a path that is both a file and a folder."""
    for path, content in files.items():
        try:
            bytes_of(content)
        except ValueError as error:
            raise InvalidFieldError("data_files", f"data file {path!r} {error}") from None
        parts = path.split("/")
        if above := [folder for i in range(1, len(parts)) if (folder := "/".join(parts[:i])) in files]:
            raise InvalidFieldError("data_files", f"data file {above[0]!r} is also the folder of {path!r}")
