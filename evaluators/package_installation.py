"""Install packages with pip and compile them: no code of theirs runs, and memory, time and space are bounded."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from speciate.subprocesses import measure

_BUILD_S: Final = 1800.0
_PIP_BYTES: Final = 2 << 30
_COMPILER_BYTES: Final = 1 << 30
_MOST_FILES: Final = 200_000
_LEAST_FILE_BYTES: Final = 1 << 20  # of pip itself
_LOOK_S: Final = 0.2
_LINE_CHARS, _LINES = 4096, 50
_INHERITED: Final = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_", "REQUESTS_CA_BUNDLE")
_BOUNDED: Final = """
import resource, sys
memory, file, space, files = map(int, sys.argv[1:5])
del sys.argv[1:5]
for limit, most in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_FSIZE, file), (resource.RLIMIT_CORE, 0)):
    hard = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, (most if hard == resource.RLIM_INFINITY else min(most, hard),) * 2)
"""
# The size of a file in the directory of an archive is also the most that ``zipfile`` unpacks of it.
_PIP: Final = """
import os, zipfile
DENIED = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"}
def refuse(event, args):
    if event in DENIED:
        raise PermissionError("a build may not start processes: only wheels are installed")
sys.addaudithook(refuse)
class Archive(zipfile.ZipFile):
    opened = {}
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        sizes = [entry.file_size for entry in self.infolist()]
        self.opened[os.path.basename(str(self.filename))] = sum(sizes), len(sizes)
        size, count = map(sum, zip(*self.opened.values()))
        if size > space or count > files:
            raise OSError(f"the packages unpack to {size} bytes in {count} files: `environments_bytes` = {space},"
                          f" and {files} files, are allowed")
zipfile.ZipFile = Archive
try:
    from pip._internal.cli.main import main
except ImportError:
    sys.exit("ERROR: this Python has no pip: run `python -m ensurepip`, or `uv pip install pip`")
sys.exit(main(sys.argv[1:]))
"""
_COMPILE: Final = "import compileall\ncompileall.main()\n"
_PIP_OPTIONS: Final = (
    "install --only-binary :all: --no-compile --ignore-installed --no-input --retries 1 --timeout 20"
    " --disable-pip-version-check --no-warn-script-location --progress-bar off"
)


def install(folder: Path, site: Path, listed: Path, most_bytes: int, report: Callable[[str], None]) -> None:
    """Install packages into ``site``, in ``folder``, and compile them; a ``ValueError`` says what failed."""
    home = folder / "home"
    home.mkdir()
    build = _Build(folder, home, most_bytes)
    arguments = [*_PIP_OPTIONS.split(), "--target", str(site), "--requirement", str(listed)]
    lines: list[str] = []

    def heard(line: str) -> None:
        lines[:] = [*lines[-_LINES:], line]
        report(line)

    status = build.run(_PIP, arguments, _PIP_BYTES, heard)
    if status:
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise ValueError(" ".join(errors or lines[-3:])[-1500:] or f"pip ended with status {status}")
    report("Compiling")
    # Some packages contain files for other versions of Python, which do not compile; nor does what needs much memory.
    build.run(_COMPILE, ["-qq", "--invalidation-mode", "unchecked-hash", str(site)], _COMPILER_BYTES, lambda _: None)
    shutil.rmtree(home)


class _Build:
    """Runs programs of one build while it watches their time and the size of its folder."""

    def __init__(self, folder: Path, home: Path, most_bytes: int) -> None:
        self._folder, self._home, self._most_bytes = folder, home, most_bytes
        self._deadline = time.monotonic() + _BUILD_S
        self._exceeded = ""

    def run(self, program: str, arguments: list[str], memory: int, heard: Callable[[str], None]) -> int:
        """Return the exit status of a program; ``ValueError`` if it exceeded the time or the space."""
        limits = map(str, (memory, max(self._most_bytes, _LEAST_FILE_BYTES), self._most_bytes, _MOST_FILES))
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOUNDED + program, *limits, *arguments],
            env=environment(str(self._home)),
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(process, ended))
        watcher.start()
        try:
            with process:
                try:
                    if process.stdout is not None:
                        for line in iter(partial(process.stdout.readline, _LINE_CHARS), ""):
                            heard(line.rstrip())
                except BaseException:
                    process.kill()  # the end of the block waits for it
                    raise
        finally:
            ended.set()
            watcher.join()
        self._look()
        if self._exceeded:
            raise ValueError(self._exceeded)
        return process.returncode

    def _watch(self, process: subprocess.Popen[str], ended: threading.Event) -> None:
        pause_s = _LOOK_S
        while not ended.wait(pause_s):
            began = time.monotonic()
            self._look()
            if self._exceeded:
                process.kill()
                return
            pause_s = max(_LOOK_S, 4 * (time.monotonic() - began))

    def _look(self) -> None:
        if time.monotonic() > self._deadline:
            self._exceeded = f"the build takes more than {_BUILD_S:g} s"
        size, count = measure(self._folder, _MOST_FILES)
        if size > self._most_bytes or count > _MOST_FILES:
            self._exceeded = (
                f"the build fills {size} bytes in {count} files: `environments_bytes` = {self._most_bytes},"
                f" and {_MOST_FILES} files, are allowed"
            )


def environment(home: str) -> dict[str, str]:
    """Return the variables of a build: the settings of pip, and no others of the worker."""
    inherited = {name: value for name, value in os.environ.items() if name.upper().startswith(_INHERITED)}
    # pip keeps its cache and reads its configuration beneath the user's home.
    own = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME") if name in os.environ}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TMPDIR": home} | own | inherited
