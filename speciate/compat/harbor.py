"""Read a task of Harbor, the successor of Terminal-Bench: ``task.toml``, ``instruction.md``, ``tests/test.sh``.

A candidate is the script that an agent would have run: ``solve.sh``. It runs in the task's image, then the test runs in
the same container and writes ``/logs/verifier/reward.txt`` or ``reward.json``; several rewards become objectives.
Format: https://www.harborframework.com/docs/tasks.
"""

import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from speciate.compat import Choice
from speciate.compat.draft import COMMENTS, PROBE, Draft, DraftRewards, Objectives, contained
from speciate.compat.folder import optional_text, read_folder, refused
from speciate.compat.naming import named_after
from speciate.domain.errors import InvalidInputError
from speciate.domain.image import check_image
from speciate.problems.loader import FILE_NAME
from speciate.problems.writing import toml_text

CONFIG: Final = "task.toml"
INSTRUCTION: Final = "instruction.md"
SEED: Final = "solve.sh"

_SCRIPT: Final = "evaluate.sh"
_REFERENCE: Final = "solution/solve.sh"
_WORKDIR: Final = re.compile(r"(?im)^\s*WORKDIR\s+(/\S*)\s*$")
_SIZE: Final = re.compile(r"(?i)(\d+(?:\.\d+)?)\s*([kmg]?)i?b?")
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30}
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*")
_DEFAULT_S: Final = 600.0
_DEFAULT_BYTES: Final = 2 << 30
_FOLDERS: Final = ("/logs", "/root", "/tests")


@dataclass(frozen=True, slots=True)
class HarborDraft(Draft):
    image: str = ""
    folder: str = "/app"
    variables: tuple[tuple[str, str], ...] = ()
    reference: str = ""

    def texts(self, rewards: DraftRewards) -> dict[str, str]:
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.variables)
        script = contained("harbor.sh").replace("@FOLDER@", shlex.quote(self.folder)).replace("@EXPORTS@\n", exports)
        script = script.replace("@PROBE@", "" if rewards.seed else f'"{PROBE.name}": 0, ')
        definition = toml_text(self._definition(rewards), COMMENTS)
        return {FILE_NAME: definition, _SCRIPT: script, SEED: _STUB.format(folder=self.folder), **self.files}

    def _definition(self, rewards: DraftRewards) -> dict[str, Any]:
        definition = Draft._definition(self, rewards)
        return definition | {
            "worst_seed": True,
            "image": self.image,
            "writable": sorted({self.folder, *_FOLDERS}),
            "evaluator": _SCRIPT,
            "data_files": [*self.files],
            "description": f"{self.description.strip()}\n\n{_TASK.format(folder=self.folder)}",
            "language": {"name": "Bash", "file": SEED, "run": ["bash", "evaluator"]},
            "limits": definition["limits"] | _LIMITS | dict(self.limits),
        }


def read_harbor(folder: Path, choice: Choice) -> HarborDraft:
    if choice.program or choice.evaluator:
        raise InvalidInputError(
            "tasks of Harbor name their own program and test.", remedy="Omit --program and --evaluator."
        )
    needed, _ = read_folder(folder, (CONFIG, INSTRUCTION), evaluator=CONFIG)
    try:
        config = tomllib.loads(needed[CONFIG])
    except tomllib.TOMLDecodeError as error:
        raise refused(folder, f"is not TOML: {error}", CONFIG) from None
    include = [pattern.removeprefix("tests/") for pattern in choice.include]
    tests, left_out = read_folder(folder / "tests", ("test.sh",), include=include)
    environment, verifier = _table(config, "environment"), _table(config, "verifier")
    variables, remarks = _variables(_table(environment, "env") | _table(verifier, "env"))
    if environment.get("allow_internet", True):
        remarks.append("the container has no network: a test or solution that downloads something fails")
    if (folder / "environment" / "docker-compose.yaml").exists():
        remarks.append("environment/docker-compose.yaml is left out: there is one container")
    reference = optional_text(folder, _REFERENCE)
    if not reference:
        remarks.append(f"there is no {_REFERENCE}: whether the tests accept a right solution was not tried")
    slug, title = named_after(folder, "harbor")
    seconds = [_number(_table(config, part).get("timeout_sec"), _DEFAULT_S) for part in ("agent", "verifier")]
    return HarborDraft(
        slug=slug,
        title=title,
        seed=SEED,
        files={f"tests/{name}": content for name, content in tests.items()},
        adapter="",
        description=needed[INSTRUCTION],
        wall_s=sum(seconds),
        memory_bytes=_bytes_in(environment),
        undeclared=Objectives.ALL,
        remarks=tuple(remarks),
        left_out={f"tests/{name}": why for name, why in left_out.items()},
        image=str(environment.get("docker_image", "")),
        folder=_work_folder(folder, environment),
        variables=tuple(variables.items()),
        reference=reference,
    )


def require_image(draft: HarborDraft, folder: Path) -> None:
    build = (
        f"Build it with `podman build -t localhost/{draft.slug} {folder / 'environment'}`, print its reference with"
        f" `podman image inspect --format '{{{{index .RepoDigests 0}}}}' localhost/{draft.slug}`, and pass that as"
        " --image. Workers on other machines need it from a registry."
    )
    if not draft.image:
        raise InvalidInputError(f"{folder} names no image: `docker_image` of {CONFIG} is not set.", remedy=build)
    try:
        check_image(draft.image)
    except ValueError as error:
        raise InvalidInputError(f"{error}.", remedy=f"Pass the reference as --image. {build}") from None


def _table(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else default


def _bytes_in(environment: Mapping[str, Any]) -> int:
    if megabytes := int(_number(environment.get("memory_mb"), 0.0)):
        return megabytes << 20
    size = _SIZE.fullmatch(str(environment.get("memory", "")).strip())
    return int(float(size[1]) * 2 ** _UNITS[size[2].lower()]) if size else _DEFAULT_BYTES


def _variables(environment: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the variables with values, and remarks about the others: values in ``${...}`` are secrets."""
    known = {name: str(v) for name, v in environment.items() if _VARIABLE.fullmatch(name) and "${" not in str(v)}
    others = (name for name in environment if name not in known)
    return known, [f"the variable {name} is left out: secrets do not reach containers" for name in others]


def _work_folder(folder: Path, environment: Mapping[str, Any]) -> str:
    stated = environment.get("workdir")
    named = [stated] if isinstance(stated, str) else _WORKDIR.findall(optional_text(folder, "environment/Dockerfile"))
    return named[-1].rstrip("/") if named and named[-1].rstrip("/") else "/app"


_LIMITS: Final = {"tmp_bytes": 256 << 20, "file_bytes": 256 << 20, "threads": 128, "processes": 64}
_STUB: Final = "#!/bin/bash\n# Commands that do the task in {folder}.\n"
_TASK: Final = """\
Write the bash script solve.sh that does this task. It runs once, as root in {folder}, without a network. Then the task
is tested."""
