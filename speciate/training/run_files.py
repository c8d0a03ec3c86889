"""Files that a reinforcement run keeps until it is complete: its identity, and each process's state in a checkpoint."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from speciate.domain.errors import ConflictError
from speciate.training.models import writing

CHECKPOINTS: Final = "checkpoints"
_STATE: Final = "speciate_state.json"


def write_json(path: Path, value: Any) -> None:
    """Write a file that is complete from the moment it has its name."""
    draft = path.with_suffix(".new")
    try:
        draft.write_text(json.dumps(value), "utf-8")
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def identity_file(folder: Path) -> Path:
    return folder / CHECKPOINTS / "run.json"


def write_identity(identity: dict[str, Any], folder: Path) -> None:
    path = identity_file(folder)
    with writing(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_json(path, identity)
        except OSError:  # leave an empty folder, in which a run may start
            with suppress(OSError):
                path.parent.rmdir()
            raise


def read_identity(path: Path) -> dict[str, Any]:
    try:
        identity: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ConflictError(
            f"{path}, which identifies the run in this folder, is not JSON: {error}.",
            remedy="Choose another folder with --out, or remove that one.",
        ) from None
    return identity


def state_file(checkpoint: Path, process: int) -> Path:
    return checkpoint / (_STATE if process == 0 else f"{process}-{_STATE}")


def is_complete(checkpoint: Path) -> bool:
    """Return True if every process of the run has saved its part of a checkpoint."""
    try:
        processes = json.loads(state_file(checkpoint, 0).read_text("utf-8")).get("processes", 1)
        for process in range(1, processes):
            json.loads(state_file(checkpoint, process).read_text("utf-8"))
    except (FileNotFoundError, ValueError):  # after a power failure a file may be empty
        return False
    return True


def read_state(checkpoint: Path, process: int, processes: int) -> dict[str, Any]:
    """Return the state that a process saved in a complete checkpoint; ``ConflictError`` if their number differed."""
    state: dict[str, Any] = json.loads(state_file(checkpoint, 0).read_text("utf-8"))
    before = state.get("processes", 1)
    if before != processes:
        raise ConflictError(
            f"{checkpoint} was saved by a training with {before} process(es), and this one has {processes}.",
            remedy=f"Resume with {before} process(es), or start again in another folder (--out).",
        )
    if process:
        state = json.loads(state_file(checkpoint, process).read_text("utf-8"))
    return state


def last_checkpoint(folder: Path, complete: Callable[[Path], bool] = is_complete) -> Path | None:
    checkpoints = [path for path in folder.glob(f"{CHECKPOINTS}/checkpoint-*") if complete(path)]
    return max(checkpoints, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
