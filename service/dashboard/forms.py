"""Reading forms, and refusing those that another site sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email import message_from_bytes, policy
from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import Depends, Request
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from speciate.domain.errors import FieldError, InvalidInputError, SpeciateError
from speciate.domain.validation import validation_message
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
        return _app_state(kind, body)
    raise HTTPException(415, "The body is no form.")


FormDep = Annotated[Form, Depends(read_form)]
SubmittedForm = Depends(read_form)
"""For a route that needs no field: refuses what another site sent."""


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


def _app_state(kind: str, body: bytes) -> Form:
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
        flaw = FieldError(f"byte {error.start} is not UTF-8: expected a text file", file=file)
        raise InvalidInputError(f"The upload cannot be read: {flaw}", flaws=(flaw,)) from None


def _text(given: str) -> str:
    # Browsers end lines of text areas by carriage return and line feed.
    return storable(given.replace("\r\n", "\n"))


def _unreadable() -> InvalidInputError:
    return InvalidInputError("The form cannot be read.", remedy="Open the page again and send it from there.")


_AROUND: Final = 2


@dataclass(frozen=True)
class Excerpt:
    """Lines around a flaw: number, text and whether it is the flawed one."""

    flaw: FieldError
    lines: Sequence[tuple[int, str, bool]]


@dataclass(frozen=True)
class FormErrors:
    """Why a form was refused.

    Attributes:
        title: In few words.
        message: In a sentence or two.
        flaws: Where and why.
    """

    title: str
    message: str
    flaws: tuple[FieldError, ...]

    def for_field(self, name: str) -> str:
        """Return what is wrong with a field, or the empty string."""
        return "; ".join(flaw.message for flaw in self.flaws if flaw.where == name)


def form_errors(error: SpeciateError | ValidationError) -> FormErrors:
    """Return what a form is errors of an error."""
    if isinstance(error, ValidationError):
        flaws = tuple(
            FieldError(validation_message(dict(each)), where=".".join(str(part) for part in each["loc"]))
            for each in error.errors(include_url=False, include_input=False)
        )
        return FormErrors("This cannot be started", "Some values do not fit:", flaws)
    return FormErrors(error.title, str(error), error.flaws if isinstance(error, InvalidInputError) else ())


def excerpts(errors: FormErrors, texts: Mapping[str, str]) -> list[Excerpt]:
    """Return the lines around every flaw whose file and line are known.

    Args:
        errors: Names files and lines.
        texts: The files by name.
    """
    found = []
    for flaw in errors.flaws[:20]:
        if flaw.line is None or flaw.file is None or flaw.file not in texts:
            continue
        lines = texts[flaw.file].split("\n")
        first, last = max(1, flaw.line - _AROUND), min(len(lines), flaw.line + _AROUND)
        found.append(Excerpt(flaw, [(n, lines[n - 1][:500], n == flaw.line) for n in range(first, last + 1)]))
    return found
