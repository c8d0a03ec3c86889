"""Try the tokenizer and the chat template of a checkpoint in a process of its own before the server uses them.

A regular expression, a loop of a template or a panic in Rust could otherwise stop or end the server.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from speciate.domain.errors import ConfigurationError
from speciate.inference.checkpoint import EXPORT_AGAIN

_CPU_S: Final = 10
_WALL_S: Final = 180.0
_BYTES: Final = 2 << 30
_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_SAMPLES: Final = (
    "Improve this program:\n\n```python\ndef solve(x):\n    return 2 * x\n```\n",
    *(
        unit * (4096 // len(unit)) + end
        for end in ("", "!")
        for unit in ("a", " ", "ab ", "0", "\n", "'", "é", "日本", "🙂")
    ),
)
_TRY: Final = """
import contextlib, resource, sys
folder, cpu_s, memory = sys.argv[1:]
for limit, most in ((resource.RLIMIT_CPU, int(cpu_s)), (resource.RLIMIT_DATA, int(memory)), (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(limit, (most, most))
from pathlib import Path
from speciate.domain.errors import SpeciateError
from speciate.inference.tokenizer import TextTokenizer
from speciate.inference.trial import _SAMPLES
with contextlib.suppress(SpeciateError):  # the server says it
    text = TextTokenizer(Path(folder), 1 << 30, 1 << 20)
    with contextlib.suppress(SpeciateError):
        text.chat([{"role": "user", "content": _SAMPLES[0]}])
    for sample in _SAMPLES:
        with contextlib.suppress(SpeciateError):
            text.encode(sample)
"""
_passed: set[str] = set()


def try_texts(folder: Path) -> None:
    """Try the tokenizer and the chat template, unless files with this content have passed."""
    digest = hashlib.sha256()
    for path in (folder / name for name in _FILES):
        digest.update(path.read_bytes() if path.is_file() else b"")
        digest.update(b"\0")
    if digest.hexdigest() in _passed:
        return
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _TRY, str(folder), str(_CPU_S), str(_BYTES)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        reason = f"do not end within {_WALL_S:g} s"
    else:
        if tried.returncode == 0:
            _passed.add(digest.hexdigest())
            return
        lines = tried.stderr.decode("utf-8", "replace").strip().splitlines()
        killed = f"end their process, or need more than {_CPU_S} s or {_BYTES >> 30} GiB for short texts"
        reason = killed if tried.returncode < 0 or not lines else f"fail: {lines[-1][:300]}"
    raise ConfigurationError(f"{folder}: its tokenizer and chat template {reason}.", remedy=EXPORT_AGAIN)
