"""What a scoring function depends on, as a digest: a run may continue only with the function that began it."""

import copyreg
import hashlib
import inspect
import pickle
import sys
from functools import partial
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any


def fingerprint(function: Any) -> tuple[str, frozenset[str]]:
    """Return a digest of source, captured values and used modules, and the types of objects that cannot be compared."""
    digest = hashlib.sha256()
    pickler = _SourcePickler(SimpleNamespace(write=digest.update), function)
    try:
        pickler.dump(function)
    except RecursionError:
        pickler.unread.add("deeply nested data")
    return digest.hexdigest(), frozenset(pickler.unread)


class _SourcePickler(pickle.Pickler):
    """Writes functions and classes of one module by their source, and modules beside it by their files."""

    def __init__(self, stream: Any, function: Any) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)  # which copies no array
        self.unread: set[str] = set()
        self._seen: dict[int, Any] = {}  # keeps the objects alive, so that no id is used twice
        self._home = getattr(function.func if isinstance(function, partial) else function, "__module__", "")
        path = getattr(sys.modules.get(self._home), "__file__", None)
        self._folder = Path(path).absolute().parent if path else Path.cwd()

    def persistent_id(self, item: Any) -> Any:
        return sorted(item, key=repr) if isinstance(item, set | frozenset) else None  # each process orders sets anew

    def reducer_override(self, item: Any) -> Any:
        if getattr(item, "__module__", None) == "builtins" or type(item) in copyreg.dispatch_table:
            return NotImplemented
        if id(item) in self._seen:
            return str, ()
        self._seen[id(item)] = item
        if isinstance(item, ModuleType):
            return self._of_module(item)
        if isinstance(item, FunctionType | type):
            home = item.__module__ == self._home
            return self._of_code(item) if home else (str, (item.__qualname__, sys.modules.get(item.__module__)))
        if isinstance(item, MethodType):
            return str, (item.__func__, item.__self__)
        try:
            if hasattr(item, "__wrapped__"):
                return str, (item.__wrapped__,)
            if hasattr(type(item), "untyped_storage"):  # a tensor of PyTorch, whose own form contains an address
                values = item.detach().cpu().flatten().view(sys.modules["torch"].uint8).numpy()
                return str, (str(item.dtype), tuple(item.shape), values)
            return item.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 - any object may refuse in its own way
            self.unread.add(type(item).__name__)
            return str, ()

    def _of_code(self, item: Any) -> tuple[Any, ...]:
        try:
            source: object = inspect.getsource(item)
        except (TypeError, OSError):  # entered at a prompt
            source = getattr(getattr(item, "__code__", None), "co_code", "")
        if isinstance(item, type):
            return str, (source, item.__bases__, *filter(inspect.isfunction, vars(item).values()))
        values = [cell.cell_contents for cell in item.__closure__ or () if cell != CellType()]
        for name in sorted(_names(item.__code__)):
            beside = self._folder / f"{name}.py"  # imported in its body
            values.append(item.__globals__.get(name, beside.is_file() and beside.read_bytes()))
        return str, (source, item.__defaults__, item.__kwdefaults__, values)

    def _of_module(self, module: ModuleType) -> tuple[Any, ...]:
        path = Path(getattr(module, "__file__", None) or "/").absolute()
        if "site-packages" in path.parts or not path.is_file() or not path.is_relative_to(self._folder):
            return str, (module.__name__, str(getattr(module, "__version__", "")))
        files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
        used = [sys.modules.get(getattr(each, "__module__", "")) or each for each in vars(module).values()]
        return str, ([file.read_bytes() for file in files], [each for each in used if isinstance(each, ModuleType)])


def _names(code: CodeType) -> set[str]:
    """Return the names of globals, attributes and modules in the code of a function and of those inside it."""
    return {*code.co_names}.union(*(_names(each) for each in code.co_consts if isinstance(each, CodeType)))
