"""What an engine may do on this machine, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluators.contained import landlock
from speciate import engines
from speciate.engines.check import ToyService, toy_session
from speciate.engines.contain import LEFT_RUNNING
from speciate.engines.installation import from_command
from speciate.engines.launch import run_engine
from speciate.engines.relay import Relay
from speciate.subprocesses import CommandResult
from tests.support.openai_endpoint import serve

WAIT_S = 30.0
PYTHON = Path(sys.executable).resolve()

needs_files = pytest.mark.skipif(not landlock.abi(), reason="the kernel has no Landlock")
needs_network = pytest.mark.skipif(landlock.abi() < landlock.NETWORK_SINCE, reason="Landlock does not control TCP")


def run(
    tmp_path: Path, source: str, *, limit_s: float = WAIT_S, give_up: Callable[[], bool] = lambda: False
) -> tuple[CommandResult, str]:
    script = tmp_path / "engine.py"
    script.write_text(textwrap.dedent(source))
    engine = from_command(f"{PYTHON} {script}")
    service = ToyService()
    session = toy_session("mine", service)
    with Relay(service, session) as relay:
        return run_engine(engine, session, tmp_path / "run", relay, limit_s, give_up)


def alive(mark: str) -> list[int]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in entry.read_bytes():
                pids.append(int(entry.parent.name))
        except OSError:
            continue
    return pids


def test_environment_folder_and_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_TOKEN", "secret")
    source = """
        import json, os
        print(json.dumps([dict(os.environ), os.getcwd(), json.load(open(os.environ["SPECIATE_ENGINE_RUN"]))]))
        raise SystemExit(3)
    """
    ended, tail = run(tmp_path, source)
    assert ended.status == 3
    variables, folder, values = json.loads(tail)
    home = str(tmp_path / "run" / "home")
    assert (folder, variables["HOME"], variables["TMPDIR"]) == (home, home, home)
    assert variables.keys() - {"LC_CTYPE"} == {
        "PATH", "LANG", "TZ", "HOME", "TMPDIR", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY",
        "SPECIATE_MODEL_URL", "SPECIATE_MODEL", "SPECIATE_EVALUATOR_URL", "SPECIATE_ENGINE_RUN", "SPECIATE_COMMAND",
    }  # fmt: skip
    assert values["output"] == f"{home}/output"
    assert "def value()" in Path(values["initial"]).read_text()
    assert (values["evaluations"], values["concurrency"], values["seed"]) == (8, 2, 1)
    assert "id" not in values


@needs_files
@pytest.mark.parametrize(
    "attempt",
    [
        "open('{other}/home/programs.json').read()",
        "open('{other}/home/planted', 'w')",
        "open('{run}/run.json', 'w')",
        "open('{run}/output.log', 'w')",
        "open('{drivers}/addresses.py', 'a')",
        "open('/etc/shadow').read()",
        "open('/proc/%d/environ' % os.getppid()).read()",
        "os.kill(os.getppid(), 0)",
    ],
)
def test_what_belongs_to_others_is_out_of_reach(tmp_path: Path, attempt: str) -> None:
    other = tmp_path / "other" / "home"
    other.mkdir(parents=True)
    (other / "programs.json").write_text("[]")
    if "os.kill" in attempt and landlock.abi() < 6:
        pytest.skip("Landlock does not control signals")
    line = attempt.format(other=other.parent, run=tmp_path / "run", drivers=Path(engines.__file__).parent / "drivers")
    assert (
        run(tmp_path, f"import os\ntry:\n    {line}\nexcept PermissionError:\n    print('refused')\n")[1] == "refused"
    )


@needs_network
def test_only_the_port_of_the_relay_can_be_reached(tmp_path: Path) -> None:
    with serve() as other:
        source = f"""
            import os, socket
            own = os.environ["SPECIATE_EVALUATOR_URL"].split(":")[2].split("/")[0]
            for port in (own, {other.url.split(":")[2].split("/")[0]}):
                try:
                    socket.create_connection(("127.0.0.1", int(port))).close()
                    print("open")
                except PermissionError:
                    print("refused")
        """
        assert run(tmp_path, source)[1].split() == ["open", "refused"]


def test_processes_that_are_left_are_ended_and_named(tmp_path: Path) -> None:
    source = f"""
        import os, subprocess, sys, time
        code = "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\ntime.sleep(600)  # {tmp_path}"
        subprocess.run([sys.executable, "-c", code], env={{}})
        time.sleep(0.3)
    """
    ended, tail = run(tmp_path, source)
    assert (ended.status, tail) == (0, LEFT_RUNNING)
    assert not alive(f"# {tmp_path}")


BURN = """
    import subprocess, sys, time
    code = "import time\\nwhile time.process_time() < 0.5: pass"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code])
"""


@pytest.mark.parametrize("end", ["", "    open('done', 'w')\n    time.sleep(600)"])
def test_processor_time_is_that_of_all_processes(tmp_path: Path, end: str) -> None:
    """Also if the engine must be ended."""
    ended, _ = run(tmp_path, BURN + end, give_up=(tmp_path / "run" / "home" / "done").exists)
    assert (ended.status is None) == bool(end)
    assert 1.0 <= ended.processor_s < 3.0


def test_memory_is_bounded(tmp_path: Path) -> None:
    ended, tail = run(tmp_path, "bytearray(9 << 30)")
    assert ended.status == 1
    assert tail.endswith("MemoryError")


def test_an_engine_that_ignores_sigterm_is_ended(tmp_path: Path) -> None:
    source = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    started = time.monotonic()
    ended, _ = run(tmp_path, source, limit_s=0.5)
    assert ended.status is None
    assert ended.exceeded == "ran for more than 0.5 s"
    assert time.monotonic() - started < 5
    assert not alive(str(tmp_path / "engine.py"))


def test_nothing_is_left_when_the_runner_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text("import time\nprint('on', flush=True)\ntime.sleep(600)")
    code = f"""
from pathlib import Path
from speciate.engines.check import ToyService, toy_session
from speciate.engines.installation import from_command
from speciate.engines.launch import run_engine
from speciate.engines.relay import Relay
service = ToyService()
session = toy_session("mine", service)
with Relay(service, session) as relay:
    run_engine(from_command("{PYTHON} {script}"), session, Path("{tmp_path}/run"), relay, 600, lambda: False)
"""
    runner = subprocess.Popen([sys.executable, "-c", code])
    log = tmp_path / "run" / "output.log"
    deadline = time.monotonic() + WAIT_S
    while not (log.exists() and log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    while alive(str(script)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
