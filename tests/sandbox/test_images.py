"""Programs in container images: what they cannot do, and that no container outlives its evaluation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from evaluators.build_cache import BuildCache
from evaluators.evaluator import SandboxEvaluator
from evaluators.images.engine import ENGINES, Engine
from speciate.domain.candidate import Evaluation, FailureKind
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.problem import Problem
from speciate.ports.interruption import interruptible
from tests.support.images import containers, engine_or_skip, image

SHELL = {"name": "Bash", "file": "main.sh", "run": ["bash", "main.sh"]}
SLEEP = "sleep 300"


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    found = engine_or_skip(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluators.images.engine.ENGINES", (found.name,))
        yield found


@pytest.fixture(scope="module")
def reference(engine: Engine) -> str:
    return image(engine)


@pytest.fixture(scope="module")
def sandbox(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxEvaluator]:
    opened = SandboxEvaluator("unsafe")
    opened._builds = BuildCache(tmp_path_factory.mktemp("builds"))  # which tier 'unsafe' does not use
    yield opened
    opened.close()


def problem(reference: str, **changes: object) -> Problem:
    fields = {
        "slug": "in-an-image",
        "title": "In an image",
        "kind": "cases",
        "image": reference,
        "language": SHELL,
        "objectives": [{"name": "right"}],
        "targets": [{"name": "all", "rule": "right >= 1", "unlock": True}],
        "cases": [{"input": ["7"], "expected": "7"}],
        "limits": {"wall_s": 20, "processes": 8, "threads": 8, "memory_bytes": 64 << 20, "tmp_bytes": 1 << 20},
    }
    return Problem.model_validate({**fields, **changes})


def only(sandbox: SandboxEvaluator, of: Problem, program: str) -> Evaluation:
    (found,) = sandbox.evaluate(of, [program], seeds=[1])
    return found


def test_a_program_runs_in_the_image(sandbox: SandboxEvaluator, reference: str, engine: Engine) -> None:
    found = only(sandbox, problem(reference), "cat; cat /app/start.txt >&2; id -u >&2")
    assert (found.rewards, found.tier) == ((1.0,), engine.name)
    assert found.artifacts["stderr"].splitlines()[0] == "of the image"
    assert containers(engine) == []


REFUSED = {
    "the network": ("cat < /dev/tcp/127.0.0.1/80", "Connection refused|unreachable"),
    "the host's network": ("cat < /dev/tcp/1.1.1.1/80", "unreachable"),
    "a file of the image": ("echo x > /app/start.txt", "Read-only"),
    "its own program": ("echo x > main.sh", "Read-only"),
    "the root": ("touch /x", "Read-only"),
    "a device": ("mknod /tmp/disk b 8 0", "not permitted"),
    "a mount": ("mount -t tmpfs none /app", "denied|not permitted|must be superuser"),
    "a full /tmp": ("head -c 30000000 /dev/zero | tee /tmp/a > /tmp/b", "No space"),
    "the kernel's settings": ("echo 1 > /proc/sys/kernel/panic", "Read-only|denied"),
    "the kernel's log": ("cat /proc/kmsg", "denied|not permitted|Operation"),
}


@pytest.mark.parametrize("attack", REFUSED)
def test_refused(sandbox: SandboxEvaluator, reference: str, attack: str) -> None:
    program, said = REFUSED[attack]
    found = only(sandbox, problem(reference), f"{program} || {{ echo refused >&2; exit 0; }}")
    assert "refused" in found.artifacts["stderr"]
    assert any(word in found.artifacts["stderr"] for word in said.split("|")), found.artifacts


def test_secrets_of_the_worker_are_not_there(
    sandbox: SandboxEvaluator, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECIATE_SECRET_KEY", "the-secret")
    found = only(sandbox, problem(reference), "cat; env >&2; cat /proc/*/environ | tr '\\0' '\\n' >&2")
    assert "the-secret" not in found.artifacts["stderr"]


def test_a_fork_bomb_reaches_the_limit(sandbox: SandboxEvaluator, reference: str) -> None:
    program = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 20 & done; cat"
    found = only(sandbox, problem(reference, limits={"wall_s": 4, "processes": 4, "threads": 4}), program)
    assert found.failure is not None  # bash tries to fork again until the time is up
    assert found.failure.reason == "wall_limit"


def test_memory_is_limited(sandbox: SandboxEvaluator, reference: str) -> None:
    found = only(sandbox, problem(reference), "a=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#a}")
    assert found.failure is not None
    assert found.failure.kind in (FailureKind.OUT_OF_MEMORY, FailureKind.CRASHED)


def test_an_endless_output_is_cut(sandbox: SandboxEvaluator, reference: str) -> None:
    found = only(sandbox, problem(reference), "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done")
    assert found.failure is not None
    assert found.failure.reason == "too_long"


def test_no_container_is_left_after_a_timeout(sandbox: SandboxEvaluator, reference: str, engine: Engine) -> None:
    found = only(sandbox, problem(reference, limits={"wall_s": 1.5}), f"{SLEEP} & {SLEEP}")
    assert found.failure is not None
    assert found.failure.reason == "wall_limit"
    assert containers(engine) == []


def test_no_container_is_left_after_a_cancellation(sandbox: SandboxEvaluator, reference: str, engine: Engine) -> None:
    lost, ended = threading.Event(), []

    def evaluate() -> None:
        with interruptible(lost):
            ended.append(only(sandbox, problem(reference, limits={"wall_s": 100}), SLEEP))

    thread = threading.Thread(target=evaluate)
    thread.start()
    _wait_until(lambda: len(containers(engine)) == 1)
    lost.set()
    thread.join(30)
    assert len(ended) == 1
    assert containers(engine) == []


_WORKER = """
import sys
import evaluators.images.engine
from evaluators.evaluator import SandboxEvaluator
from speciate.domain.problem import Problem
evaluators.images.engine.ENGINES = (sys.argv[2],)
SandboxEvaluator("unsafe").evaluate(Problem.model_validate_json(sys.argv[1]), ["sleep 300"], seeds=[1])
"""


def test_no_container_is_left_after_a_worker_was_killed(reference: str, engine: Engine) -> None:
    definition = problem(reference, limits={"wall_s": 100}).model_dump_json()
    worker = subprocess.Popen([sys.executable, "-c", _WORKER, definition, engine.name], start_new_session=True)
    try:
        _wait_until(lambda: len(containers(engine)) == 1)
        os.killpg(worker.pid, signal.SIGKILL)
        _wait_until(lambda: containers(engine) == [])
    finally:
        worker.kill()
        worker.wait()


def test_no_container_is_left_after_its_relay_was_killed(
    sandbox: SandboxEvaluator, reference: str, engine: Engine
) -> None:
    ended = list[Evaluation]()
    thread = threading.Thread(
        target=lambda: ended.append(only(sandbox, problem(reference, limits={"wall_s": 100}), SLEEP))
    )
    thread.start()
    _wait_until(lambda: len(containers(engine)) == 1)
    os.kill(int(containers(engine)[0].split("-")[1]), signal.SIGKILL)
    thread.join(30)
    assert len(ended) == 1
    assert containers(engine) == []


def test_a_starting_worker_removes_what_killed_ones_left(
    sandbox: SandboxEvaluator, reference: str, engine: Engine
) -> None:
    run = [engine.name, "run", "--detach", *engine.options(problem(reference).limits, (), {})[2:]]
    run += ["--name", "speciate-999999999-1-b", "--entrypoint", "sleep", reference, "300"]
    subprocess.run(run, check=True, capture_output=True)
    sandbox.sweep_containers()  # or another test's worker, which starts at this moment
    assert containers(engine) == []


def test_the_container_of_a_killed_relay_is_swept(reference: str, engine: Engine) -> None:
    run = [engine.name, "run", "--detach", *engine.options(problem(reference).limits, (), {})[2:]]
    run += ["--name", "speciate-999999999-1-a", "--entrypoint", "sleep", reference, "300"]
    subprocess.run(run, check=True, capture_output=True)
    engine.sweep()  # or another test's worker, which starts at this moment
    assert containers(engine) == []


BUILT = {
    "name": "Made",
    "file": "main.sh",
    "build": [
        "bash",
        "-c",
        "cp main.sh program; chmod 755 program; grep -q BAD main.sh && { echo no BAD; exit 2; }; true",
    ],
    "run": ["./program"],
}


def test_a_program_is_built_in_the_image_once(
    sandbox: SandboxEvaluator, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = problem(reference, language=BUILT)
    program = "#!/usr/bin/bash\ncat\n"
    assert only(sandbox, of, program).rewards == (1.0,)
    assert only(sandbox, of, program).rewards == (1.0,)
    failed = only(sandbox, of, "#!/usr/bin/bash\n# BAD\n").failure
    assert failed is not None
    assert (failed.reason, "no BAD" in failed.detail) == ("build_failed", True)


def test_a_command_that_the_image_lacks_fails_the_program(sandbox: SandboxEvaluator, reference: str) -> None:
    failure = only(sandbox, problem(reference, language={**SHELL, "run": ["python3", "main.sh"]}), "x").failure
    assert failure is not None
    assert failure.reason == "program_failed"
    assert "python3" in failure.detail


def test_an_image_that_is_not_there_is_no_failure_of_the_program(sandbox: SandboxEvaluator, engine: Engine) -> None:
    with pytest.raises(EvaluatorUnavailableError, match=f"{engine.name} cannot pull"):
        only(sandbox, problem(f"localhost:1/none@sha256:{64 * '0'}"), "cat")


def test_an_image_that_was_removed_is_looked_for_again(sandbox: SandboxEvaluator, engine: Engine) -> None:
    removed = f"localhost:1/none@sha256:{64 * '1'}"
    sandbox._images._ready.add((engine.name, removed))  # as after an earlier evaluation in it
    with pytest.raises(EvaluatorUnavailableError):
        only(sandbox, problem(removed), "cat")
    with pytest.raises(EvaluatorUnavailableError, match=f"{engine.name} cannot pull"):
        only(sandbox, problem(removed), "cat")


def test_writable_folders_are_fresh_copies(sandbox: SandboxEvaluator, reference: str, engine: Engine) -> None:
    if engine.name != "podman":
        pytest.skip("only podman copies folders")
    of = problem(reference, writable=["/app"], cases=[{"input": ["7"], "expected": "7"}] * 2)
    found = only(sandbox, of, "cat; cat /app/start.txt >&2; echo changed > /app/start.txt; cat /app/start.txt >&2")
    assert found.rewards == (1.0,)
    assert found.artifacts["stderr"].split("\n")[:4] == ["of the image", "changed", "of the image", "changed"]


def test_rewards_of_a_command_in_the_image(sandbox: SandboxEvaluator, reference: str) -> None:
    of = problem(
        reference,
        kind="in_process",
        cases=[],
        evaluator='bash main.sh; echo noise; echo \'{"right": 0.5, "seconds": 3}\'',
        language={**SHELL, "run": ["bash", "evaluator"]},
        data_files={"a/b.txt": "data"},
    )
    found = only(sandbox, of, "cat data/a/b.txt")
    assert found.rewards == (0.5,)
    assert found.artifacts["other metrics"] == "seconds = 3"
    assert "datanoise" in found.artifacts["stdout"]
    broken = only(sandbox, of.model_copy(update={"evaluator": "echo none"}), "x").failure
    assert broken is not None
    assert broken.reason == "no_rewards"


def _wait_until(true: object, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)
