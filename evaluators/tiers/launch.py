"""Command line and configuration of each tier's zygote: user, isolation and readable paths."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import speciate
from evaluators.contained import numba_cache, program, tier_a, tier_b, unsafe
from evaluators.contained.requests import BootMessage
from speciate.domain.errors import EvaluatorUnavailableError

_HERE = Path(__file__).resolve().parent.parent
_CONTAINED = _HERE / "contained"
_BOOT = "import sys; sys.path.insert(0, {here!r}); from contained.zygote import main; del sys.path[0]; main({fd})"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
# Debian keeps R's start files in /etc/R.
_SYSTEM = "/usr /lib /lib64 /lib32 /bin /sbin /etc/ld.so.cache /etc/alternatives /etc/localtime /etc/R"
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# OpenMP (also PyTorch's), BLAS of several makers, numexpr, numba, Polars, joblib, XLA, Rayon, Go, Julia, Python 3.13.
_CORES = """
    OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS BLIS_NUM_THREADS VECLIB_MAXIMUM_THREADS NUMEXPR_NUM_THREADS
    NUMBA_NUM_THREADS POLARS_MAX_THREADS LOKY_MAX_CPU_COUNT NPROC RAYON_NUM_THREADS GOMAXPROCS JULIA_NUM_THREADS
    PYTHON_CPU_COUNT
"""
_PACKAGES = (Path(speciate.__file__).resolve().parent, Path(__file__).resolve().parent.parent)
_CHECKOUT = "pyproject.toml"
_LAST_PID = "/proc/sys/kernel/ns_last_pid"  # acts on the namespace of the process that writes to it
_CAP_SETGID, _CAP_SETUID = 6, 7
# Debian policy reserves this range. Processes of one worker share an id that owns no files.
_FIRST_USER, _USERS = 30_000, 29_999


@dataclass(frozen=True, slots=True)
class Launch:
    """Command line of a zygote, which inherits its socket under the same number, and its first message."""

    argv: tuple[str, ...]
    boot: BootMessage


def _tier_a(
    fd: int, preload: tuple[str, ...], folders: Path | None, site: Path | None, toolchains: tuple[str, ...]
) -> Launch:
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise EvaluatorUnavailableError(
            "Tier A needs bubblewrap, and the program `bwrap` is not installed.",
            remedy="Install the package `bubblewrap` of your Linux distribution (not the PyPI package of that name).",
        )
    user = _own_user()
    argv = [bubblewrap, "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    argv += ["--as-pid-1", "--cap-drop", "ALL"]
    argv += [] if user is None else ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    visible = readable(site, toolchains)
    # By default bubblewrap creates parent folders that only their owner may enter.
    parents = {str(parent) for path in (*visible, *_DEVICES) for parent in Path(path).parents} - {"/"}
    for parent in sorted(parents):
        argv += ["--dir", parent]
    for path in visible:
        argv += ["--ro-bind", path, path]
    argv += _covers(visible, site)
    for device in _DEVICES:
        argv += ["--dev-bind", device, device]
    argv += ["--proc", "/proc", "--dir", "/tmp"]  # noqa: S108  # every evaluation mounts its own
    argv += ["--dir", tier_a.MACHINE, "--ro-bind", tier_b.PROCESSOR, f"{tier_a.MACHINE}/cpuinfo"]
    argv += ["--symlink", tier_a.MEMORY, f"{tier_a.MACHINE}/meminfo"]
    argv += ["--symlink", tier_a.SELF, f"{tier_a.MACHINE}/self"]
    argv += ["--symlink", "/tmp", "/dev/shm"]  # noqa: S108  # locks of multiprocessing are files there
    argv += ["--dir", tier_a.FOLDERS] if folders is None else ["--ro-bind", str(folders), tier_a.FOLDERS]
    argv += ["--dir", str(Path(tier_a.LAST_PID).parent), "--bind-try", _LAST_PID, tier_a.LAST_PID]
    argv += ["--remount-ro", "/", "--chdir", "/"]
    covered = tuple(path for path in visible if path.startswith("/tmp/"))  # noqa: S108
    return Launch(
        (*argv, *_python(fd)), BootMessage("tier_a", user, preload, _site(site), covered, preload_early=site is None)
    )


def _tier_b(fd: int, preload: tuple[str, ...], folders: Path | None, site: Path | None, _: tuple[str, ...]) -> Launch:
    visible = readable(site)
    # Without namespaces another user may be unable to read Python or the folders; isolation does not depend on it.
    reachable = all(map(_open_to_all, visible)) and (folders is None or _passable(folders))
    user = _own_user() if reachable else None
    hidden = _hidden(visible, site)
    paths = (*visible, *_required_beneath(hidden, site), *_DEVICES)
    # No namespaces contain this zygote: packages that a problem names are imported by its candidates only.
    preload = preload if site is None else ()
    boot = BootMessage("tier_b", user, preload, _site(site), paths, tuple(hidden), str(folders or ""))
    return Launch(_python(fd), boot)


def _unsafe(fd: int, preload: tuple[str, ...], _: Path | None, site: Path | None, __: tuple[str, ...]) -> Launch:
    return Launch(_python(fd), BootMessage("unsafe", None, preload if site is None else (), _site(site), ()))


TIERS: dict[str, Callable[[int, tuple[str, ...], Path | None, Path | None, tuple[str, ...]], Launch]] = {
    tier_a.NAME: _tier_a,
    tier_b.NAME: _tier_b,
    unsafe.NAME: _unsafe,
}
"""Every tier by name, strongest first: the function that returns how its zygote starts.

It takes the descriptor of the zygote's end of the socket, the modules that the zygote imports first, the root of the
problem folders, the folder of the packages (None: those of the worker), and the folders of compilers and interpreters
outside the system's, which only tier A shows. It raises ``EvaluatorUnavailableError``.
"""


def environment(cores: int, toolchains: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the complete environment of contained processes, in which libraries compute with ``cores`` threads."""
    return {
        "PATH": os.pathsep.join([*(f"{folder}/bin" for folder in toolchains), SYSTEM_PATH]),
        "HOME": "/",
        "TMPDIR": tempfile.gettempdir(),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        **core_variables(cores),
        numba_cache.VARIABLE: numba_cache.CLASSES,
        program.LIBRARIES: os.pathsep.join(f"{folder}/lib" for folder in toolchains),
    }


def core_variables(cores: int) -> dict[str, str]:
    return {
        **dict.fromkeys(_CORES.split(), str(cores)),
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={str(cores > 1).lower()}",
        "JAX_PLATFORMS": "cpu",
    }


def _python(fd: int) -> tuple[str, ...]:
    # Equivalent to ``python -I`` except that -I ignores PYTHONHASHSEED, without which the order of sets changes every
    # time. Without site, Python ignores ``.pth`` files (editable installs, such as this project).
    return (sys.executable, "-s", "-P", "-S", "-c", _BOOT.format(here=str(_HERE), fd=fd))


def _site(site: Path | None) -> tuple[str, ...]:
    if site is not None:
        return (str(site),)
    return tuple(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))


def readable(site: Path | None, toolchains: tuple[str, ...] = ()) -> list[str]:
    paths = sorted({*_required_paths(site), *toolchains})
    return [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]


def _required_paths(site: Path | None) -> list[str]:
    needed = [*_SYSTEM.split(), sys.base_prefix, sys.prefix, *_site(site), str(_CONTAINED)]
    return sorted({path for path in needed if Path(path).exists()})


def _hidden(visible: list[str], site: Path | None) -> list[str]:
    """Return Speciate's folders beneath the visible paths; the canary reports one that Python needs as a whole."""
    needed = {Path(path).resolve() for path in _required_paths(site)}
    return [each for folder in hidden_folders() if folder not in needed for each in _beneath(visible, folder)]


def _required_beneath(hidden: list[str], site: Path | None) -> list[str]:
    """Return the required paths beneath hidden folders, such as the virtual environment in a checkout."""
    return [each for path in _required_paths(site) for each in _beneath(hidden, Path(path).resolve())]


def _beneath(visible: list[str], folder: Path) -> list[str]:
    reals = {path: Path(path).resolve() for path in visible}
    return [str(Path(path, folder.relative_to(real))) for path, real in reals.items() if real in folder.parents]


def _covers(visible: list[str], site: Path | None) -> list[str]:
    hidden = _hidden(visible, site)
    required = _required_beneath(hidden, site)
    argv = []
    for path in sorted({*hidden, *required}):  # sorted, so that nested folders follow their parents
        if path in hidden:
            argv += ["--tmpfs", path]
        else:
            between = [parent for parent in Path(path).parents if {*hidden} & {*map(str, parent.parents)}]
            for parent in reversed(between):
                argv += ["--dir", str(parent)]
            argv += ["--ro-bind", path, path]
    for path in hidden:
        argv += ["--remount-ro", path]
    return argv


def _open_to_all(path: str) -> bool:
    needed = 0o5 if Path(path).is_dir() else 0o4
    return _passable(Path(path)) and Path(path).stat().st_mode & needed == needed


def _passable(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o1 for parent in path.parents)


def _own_user() -> int | None:
    """Return the user for contained processes if this one is root, because kernel limits do not apply to root."""
    if os.geteuid() != 0:
        return None
    capabilities = int(Path("/proc/self/status").read_text("ascii", "replace").partition("CapEff:")[2].split()[0], 16)
    both = 1 << _CAP_SETUID | 1 << _CAP_SETGID
    return _FIRST_USER + os.getpid() % _USERS if capabilities & both == both else None


@cache
def hidden_folders() -> tuple[Path, ...]:
    """Return the folders that no candidate may read: Speciate's packages, and their checkouts."""
    checkouts = {package.parent for package in _PACKAGES if (package.parent / _CHECKOUT).exists()}
    return tuple(sorted({_PACKAGES[0], *checkouts}))


@cache
def hidden_files() -> tuple[str, ...]:
    """Return one file of each hidden kind, which the canary tries to read."""
    bundled = sorted((_PACKAGES[0] / "problems" / "bundled").glob("*/problem.toml"))[:1]
    checkouts = [folder / _CHECKOUT for folder in hidden_folders() if (folder / _CHECKOUT).exists()]
    return tuple(map(str, (*bundled, *checkouts)))
