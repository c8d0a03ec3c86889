"""Run an engine on a run, contained."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from evaluators.contained import landlock
from evaluators.tiers.launch import SYSTEM_PATH
from speciate.domain.known_languages import known_language
from speciate.domain.values import storable
from speciate.engines.installation import Engine
from speciate.engines.relay import Relay
from speciate.process_roots import child_environment
from speciate.schema.engines import EngineSession
from speciate.subprocesses import CommandLimits, CommandResult, run_command

_OUTPUT_BYTES: Final = 1 << 20
_FOLDER_BYTES: Final = 4 << 30
_STOP_S: Final = 10.0
_TAIL_BYTES: Final = 2000


def missing_containment() -> str:
    """Return what the kernel of this machine allows engines although it should not; empty if there is nothing."""
    version = landlock.abi()
    if version == 0:
        return "The kernel has no Landlock (Linux 5.13 or newer): engines can change all files of this user."
    if version < landlock.NETWORK_SINCE:
        return "The kernel is older than Linux 6.7: engines can reach other servers than their two addresses."
    return ""


def run_engine(
    engine: Engine, session: EngineSession, folder: Path, relay: Relay, limit_s: float, give_up: Callable[[], bool]
) -> tuple[CommandResult, str]:
    """Run an engine until it ends, reaches a limit or ``give_up`` returns True; return the end of its output, too.

    It may change ``folder/home`` only, and finds there what an earlier attempt left.
    """
    home, run, log = folder / "home", folder / "run.json", folder / "output.log"
    output = home / "output"
    if output.is_symlink() or output.is_file():  # what an earlier attempt put in place of the folder
        output.unlink()
    output.mkdir(parents=True, exist_ok=True)
    language = known_language(session.language)
    initial = folder / f"initial{Path(language.file).suffix if language else '.py'}"
    initial.write_text(session.seed_program, encoding="utf-8")
    values = session.model_dump(mode="json", exclude={"id", "lease_until"})
    values |= {"initial": str(initial), "output": str(output), "concurrency": relay.concurrency}
    run.write_text(json.dumps(values, indent=1), encoding="utf-8")
    order = {
        "command": [part.replace("{run}", str(run)) for part in engine.command],
        "home": str(home),
        "log": str(log),
        "readable": [*engine.readable, str(folder)],
        "port": relay.port,
        "parent": os.getpid(),
        "environment": {
            "PATH": os.pathsep.join((str(Path(engine.command[0]).parent), SYSTEM_PATH)),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "HOME": str(home),
            "TMPDIR": str(home),
            "SPECIATE_ENGINE_RUN": str(run),
            **relay.variables,
        },
    }
    ended = run_command(
        (sys.executable, "-P", "-s", "-m", "speciate.engines.contain"),
        child_environment({"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}),
        CommandLimits(limit_s, _OUTPUT_BYTES, _FOLDER_BYTES, _STOP_S),
        folder=folder,
        text=json.dumps(order),  # no argument: those can be read by all users of the machine
        give_up=give_up,
    )
    with log.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
        return ended, storable(file.read().decode("utf-8", "replace")).strip()
