"""Read forms sent by our own pages, and describe what is wrong with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import parse_qs

from fastapi import Depends, Request
from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from speciate.domain.budget import beyond_reason
from speciate.domain.errors import FieldError, InvalidInputError, SpeciateError
from speciate.domain.validation import place_of, validation_message
from speciate.domain.values import digest_of, storable
from speciate.loopback import from_own_page

_MAX_FIELDS: Final = 500


@dataclass(frozen=True)
class Form:
    fields: dict[str, str]
    """Texts by field name with line feeds only; the last one if a name is repeated."""
    files: dict[str, str]
    """Texts of uploaded files by file name without folders."""

    def text(self, name: str) -> str:
        """Return a field without surrounding blanks, or the empty string if it is missing."""
        return self.fields.get(name, "").strip()


async def read_form(request: Request) -> Form:
    """Return the form of a request.

    Raises:
        HTTPException: 403 if another site sent it; 415 if the body is not a form.
        InvalidInputError: The form cannot be parsed.
    """
    if not from_own_page(request.headers):
        raise HTTPException(403, "This form came from another site: open the page here and send it again.")
    content_type = request.headers.get("content-type", "")
    if content_type.startswith("application/x-www-form-urlencoded"):
        try:
            lists = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError:
            raise _unreadable() from None
        return Form({name: _text(values[-1]) for name, values in lists.items()}, {})
    if content_type.startswith("multipart/form-data"):
        return await _read_multipart(request)
    raise HTTPException(415, "The body is not a form.")


FormDep = Annotated[Form, Depends(read_form)]
SubmittedForm = Depends(read_form)
"""For a route that reads no field: still refuses forms sent by other sites."""


def local_path(path: str) -> str:
    """Return a path to redirect to, or "/" if it would lead to another site, as "//host" does."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"


async def _read_multipart(request: Request) -> Form:
    if "charset" in request.headers["content-type"].lower():  # no browser sends it, and some take quadratic time
        raise _unreadable()
    fields: dict[str, str] = {}
    files: dict[str, str] = {}
    size = len(await request.body())
    try:
        async with request.form(max_files=_MAX_FIELDS, max_fields=_MAX_FIELDS, max_part_size=size) as parts:
            for name, part in parts.multi_items():
                if not isinstance(part, UploadFile):
                    fields[name] = _text(part)
                elif part.filename:
                    base = storable(part.filename.replace("\\", "/").rpartition("/")[2])[:200]
                    files[base] = _decode(await part.read(), base)
    except (HTTPException, MultiPartException) as error:
        reason = error.detail if isinstance(error, HTTPException) else error.message
        raise _unreadable(f": {reason.rstrip('.')}") from None
    return Form(fields, files)


def _decode(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = FieldError(f"byte {error.start} is not UTF-8: expected a text file", file=file)
        raise InvalidInputError(f"The upload cannot be read: {detail}", field_errors=(detail,)) from None


def _text(value: str) -> str:
    # Browsers end the lines of a text area with carriage return and line feed.
    return storable(value.replace("\r\n", "\n"))


def _unreadable(reason: str = "") -> InvalidInputError:
    return InvalidInputError(f"The form cannot be read{reason}.", remedy="Reload the page and send the form again.")


@dataclass(frozen=True)
class FormErrors:
    title: str
    message: str
    details: Sequence[FieldError] = ()

    def for_field(self, name: str) -> str:
        return "; ".join(detail.message for detail in self.details if detail.where == name)


def require_confirmation(values: Mapping[str, str], limits: Mapping[str, object], doubt: str = "") -> None:
    """Require the tick ``confirmed`` for a budget beyond reason, or if there is a ``doubt``."""
    if large := beyond_reason(limits):
        doubt = f"A budget of {large} is unusually large"
    if doubt and values.get("confirmed") != "on":
        detail = FieldError("tick the box above the button to start anyway", where="confirmed")
        raise InvalidInputError(f"{doubt}.", field_errors=(detail,))


def form_errors(error: SpeciateError | ValidationError) -> FormErrors:
    if isinstance(error, ValidationError):
        details = tuple(
            FieldError(validation_message(each), where=place_of(each))
            for each in map(dict[str, Any], error.errors(include_url=False, include_input=False))
        )
        return FormErrors("Invalid values", "Correct these fields:", details)
    return FormErrors(error.title, str(error), error.field_errors if isinstance(error, InvalidInputError) else ())


def idempotency_key(values: Mapping[str, str], request: Any) -> str | None:
    """Return the key of a form's request: sent twice it has one effect, changed after the Back button it is another."""
    return f"form {digest_of([values['key'], request])}" if values.get("key") else None
