"""Reading forms, and refusing those that another site sends."""

from __future__ import annotations

from email import message_from_bytes, policy
from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from speciate.domain.errors import Flaw, InvalidInputError
from speciate.domain.values import storable
from speciate.loopback import from_own_page

_MOST_FIELDS: Final = 500


class Form:
    """What was filled in: texts by name of field, the last one where a name comes twice, and uploaded files.

    Attributes:
        fields: Texts as they were filled in, with line feeds alone.
        files: Texts of the files by their names, the folder left out.
    """

    def __init__(self, fields: dict[str, str], files: dict[str, str]) -> None:
        self.fields = fields
        self.files = files

    def text(self, name: str) -> str:
        """Return a field, without blanks around it; the empty string when it is not there."""
        return self.fields.get(name, "").strip()


async def read_form(request: Request) -> Form:
    """Return the form that a page of ours sent.

    Raises:
        HTTPException: 403, it comes from elsewhere; 415, it is no form.
        InvalidInputError: It cannot be read.
    """
    require_same_origin(request)
    kind = request.headers.get("content-type", "")
    body = await request.body()
    if kind.startswith("application/x-www-form-urlencoded"):
        try:
            found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise _unreadable() from None
        return Form({name: _text(values[-1]) for name, values in found.items()}, {})
    if kind.startswith("multipart/form-data"):
        return _parts(kind, body)
    raise HTTPException(415, "The body is no form.")


FormDep = Annotated[Form, Depends(read_form)]


def own_path(path: str) -> str:
    """Return a path to go to, where it is one of ours; else the first page. "//host" would lead away."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"


def require_same_origin(request: Request) -> None:
    """Refuse what a page of another site sent; browsers say where a form comes from.

    Raises:
        HTTPException: 403.
    """
    if not from_own_page(request.headers):
        raise HTTPException(
            403, "This form was not sent by a page of this service: open the page and send it from there."
        )


def _parts(kind: str, body: bytes) -> Form:
    # A form's parts are written like those of a mail, and the reader for these comes with Python.
    message = message_from_bytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body, policy=policy.HTTP)
    if not message.is_multipart():
        raise _unreadable()
    fields: dict[str, str] = {}
    files: dict[str, str] = {}
    for part in list(message.iter_parts())[:_MOST_FIELDS]:
        content = part.get_payload(decode=True)
        if not isinstance(content, bytes):
            raise _unreadable()
        name = str(part.get_param("name", "", header="content-disposition"))
        file = part.get_filename()
        if file is None:
            fields[name] = _text(content.decode("utf-8", "replace"))
        elif file:
            files[_base(file)] = _utf8(content, _base(file))
    return Form(fields, files)


def _base(file: str) -> str:
    return storable(file.replace("\\", "/").rpartition("/")[2])[:200]


def _utf8(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        flaw = Flaw(f"byte {error.start} is not UTF-8: expected a text file", file=file)
        raise InvalidInputError(f"The upload cannot be read: {flaw}", flaws=(flaw,)) from None


def _text(given: str) -> str:
    # Browsers end lines of text areas by carriage return and line feed.
    return storable(given.replace("\r\n", "\n"))


def _unreadable() -> InvalidInputError:
    return InvalidInputError("The form cannot be read.", remedy="Open the page again and send it from there.")
