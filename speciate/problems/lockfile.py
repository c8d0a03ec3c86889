"""Read the packages of a problem from a lock file: ``requirements.txt`` with or without hashes, or ``pylock.toml``.

Tools such as ``pip-compile``, ``uv export`` and ``pip lock`` write them. ``pylock.toml`` is defined by PEP 751.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from speciate.domain.values import REQUIREMENT


class UnreadableError(Exception):
    """A file beside a problem's definition cannot be used; the message states the reason and the expected file."""


_COMMENT: Final = re.compile(r"(^|\s)#.*")


def requirement_lines(text: str) -> list[str]:
    lines = [_COMMENT.sub("", line).strip() for line in re.sub(r"\\\r?\n", " ", text).splitlines()]
    return [" ".join(line.split()) for line in lines if line]


def locked_requirements(name: str, text: str) -> list[str]:
    lines = _in_pylock(name, text) if name.endswith(".toml") else requirement_lines(text)
    for line in lines:
        if not re.fullmatch(REQUIREMENT, line):
            raise UnreadableError(
                f"{name!r} has {line[:80]!r}: expected packages with versions and hashes, no URLs, paths and options"
            )
    return lines


def _in_pylock(name: str, text: str) -> list[str]:
    try:
        packages = tomllib.loads(text).get("packages")
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise UnreadableError(f"{name!r} is not valid TOML: {str(error)[:200]}") from None
    if not isinstance(packages, list) or not all(isinstance(each, dict) for each in packages):
        raise UnreadableError(f"{name!r} has no list of packages: expected a pylock.toml (PEP 751)")
    return [_line(name, package) for package in packages]


def _line(name: str, package: Mapping[str, Any]) -> str:
    wheels = package.get("wheels")
    if "version" not in package or not isinstance(wheels, list) or not wheels:
        raise UnreadableError(
            f"{name!r} locks {str(package.get('name'))[:80]!r} without a version and wheels: only wheels are installed"
        )
    hashes = [wheel.get("hashes") for wheel in wheels if isinstance(wheel, dict)]
    digests = dict.fromkeys(str(each.get("sha256", "")) for each in hashes if isinstance(each, dict))
    marker = f" ; {package['marker']}" if "marker" in package else ""
    options = "".join(f" --hash=sha256:{digest}" for digest in digests if digest)
    return f"{package.get('name')}=={package['version']}{marker}{options}"
