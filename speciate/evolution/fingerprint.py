"""What a scoring function depends on, as a digest: a run may continue only with the function that began it."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Fingerprint:
    """Digest of a function: its source, captured values, and what it uses of the modules in its folder.

    ``unread`` names the types of captured objects that cannot be compared.
    """

    def __init__(self, function: Any) -> None:
        self.unread: set[str] = set()
        self._seen: dict[int, Any] = {}  # keeps the objects alive, so that no id is used twice
        code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
        path = Path(code.co_filename if code else getattr(sys.modules.get(type(function).__module__), "__file__", ""))
        self._folder = path.absolute().parent if path.is_file() else Path.cwd()
        digest = hashlib.sha256()
        for part in self._parts(function):
            digest.update(part + b"\0")
        self.hexdigest = digest.hexdigest()

    def _parts(self, value: Any) -> Iterator[bytes]:
        if isinstance(value, _PLAIN):
            yield repr(value).encode()
            return
        yield type(value).__qualname__.encode()
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        for each in self._inside(value):
            yield from self._parts(each)

    def _inside(self, value: Any) -> list[Any]:
        match value:
            case list() | tuple():
                return [*value]
            case set() | frozenset():
                return sorted(map(repr, value))
            case Mapping():
                return [each for item in value.items() for each in item]
            case partial():
                return [value.func, value.args, value.keywords]
            case MethodType():
                return [value.__func__, value.__self__]
            case _:
                return self._inside_code(value)

    def _inside_code(self, value: Any) -> list[Any]:
        match value:
            case FunctionType():
                return self._of_function(value)
            case ModuleType():
                return self._of_module(value)
            case type():
                return self._of_class(value)
            case _ if self._own(type(value)):
                return [type(value), getattr(value, "__dict__", None)]
            case _:
                return [self._pickled(value)]

    def _of_class(self, value: type) -> list[Any]:
        name = f"{value.__module__}.{value.__qualname__}"
        functions = [each for each in vars(value).values() if isinstance(each, FunctionType)]
        return [name, self._source(value), *value.__bases__, *functions] if self._own(value) else [name]

    def _of_function(self, function: FunctionType) -> list[Any]:
        parts: list[Any] = [function.__module__, function.__qualname__, function.__defaults__, function.__kwdefaults__]
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # empty
                parts.append(cell.cell_contents)
        parts.append(getattr(function, "__wrapped__", None))
        if self._own(function):
            parts.append(self._source(function))
            for name in sorted(_names(function.__code__)):
                if name in function.__globals__:
                    parts.append(function.__globals__[name])
                elif (self._folder / f"{name}.py").is_file():  # imported in its body
                    parts.append((self._folder / f"{name}.py").read_bytes())
        return parts

    def _of_module(self, module: ModuleType) -> list[Any]:
        path = Path(getattr(module, "__file__", None) or "")
        if not (self._own(module) and path.is_file()):
            return [module.__name__, str(getattr(module, "__version__", ""))]
        files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
        used = [each for each in vars(module).values() if isinstance(each, ModuleType | FunctionType | type)]
        modules = [each if isinstance(each, ModuleType) else sys.modules.get(each.__module__) for each in used]
        return [*(file.read_bytes() for file in files), *modules]

    def _own(self, item: Any) -> bool:
        """Return True if a function, class or module is the user's: typed in, or in the folder of the function."""
        if isinstance(item, FunctionType):
            path = item.__code__.co_filename
        else:
            name = item.__name__ if isinstance(item, ModuleType) else item.__module__
            if name == "__main__":
                return True
            path = getattr(sys.modules.get(name), "__file__", None) or ""
        if not Path(path).is_file():
            return path.startswith("<")  # typed in; other modules without a file are part of Python
        libraries = "site-packages" in path or Path(path).is_relative_to(sysconfig.get_path("stdlib"))
        return Path(path).absolute().is_relative_to(self._folder) and not libraries

    def _source(self, item: Any) -> str | bytes:
        try:
            return inspect.getsource(item)
        except (TypeError, OSError):  # entered at a prompt
            return item.__code__.co_code if isinstance(item, FunctionType) else b""

    def _pickled(self, value: Any) -> bytes:
        try:
            return pickle.dumps(value)
        except Exception:  # noqa: BLE001 - any object may refuse in its own way
            self.unread.add(type(value).__name__)
            return b""


def _names(code: CodeType) -> set[str]:
    """Return the names of globals, attributes and modules in the code of a function and of those inside it."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names}.union(*inner)
