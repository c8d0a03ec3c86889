import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evaluators.contained.kernel import LOW_FDS
from evaluators.evaluator import SandboxEvaluator
from evaluators.evaluator_factory import open_evaluator
from evaluators.tiers.pool import ZygotePool
from speciate.domain.candidate import FailureKind
from speciate.domain.errors import ConfigurationError, EvaluatorUnavailableError

GOOD = "def solve(x):\n    return x\n"


@pytest.fixture
def echo(make_problem):
    return make_problem("cases", cases=[{"input": [i], "expected": i} for i in range(3)], limits={"wall_s": 20})


def test_an_unknown_tier_is_named_with_the_known_ones():
    with pytest.raises(ConfigurationError, match=r"'castle'.*A, B, unsafe"):
        open_evaluator("castle")


def test_an_empty_batch_is_an_empty_list(sandbox, echo):
    assert sandbox.evaluate(echo, [], seeds=[]) == []


def test_every_program_needs_a_seed(sandbox, echo):
    with pytest.raises(ValueError, match="one seed per program"):
        sandbox.evaluate(echo, [GOOD], seeds=[])


def test_results_keep_the_order_of_the_programs(sandbox, make_problem):
    problem = make_problem("cases", cases=[{"input": [i], "expected": 1} for i in range(4)])
    programs = [f"def solve(x):\n    return int(x < {n})\n" for n in range(5)]
    assert [e.rewards for e in sandbox.evaluate(problem, programs, seeds=range(5))] == [(n / 4,) for n in range(5)]


def test_what_the_batch_has_no_time_for_times_out(sandbox, echo):
    forever = "def solve(x):\n    while True: pass\n"
    results = sandbox.evaluate(echo, [GOOD, forever, GOOD], seeds=[0, 0, 0], timeout_s=2)
    assert results[0].rewards == (1.0,)
    for late in results[1:]:
        assert late.failure is not None
        assert (late.failure.kind, late.failure.reason) == (FailureKind.TIMEOUT, "batch_deadline")
    assert [e.tier for e in results] == [sandbox.tier] * 3


@pytest.mark.parametrize("kind", ["evaluator", "data"])
def test_the_batch_deadline_binds_scripts_too(sandbox, make_problem, kind):
    function = "evaluate" if kind == "evaluator" else "score"
    script = f"import time\ndef {function}(subject, context):\n    time.sleep(60)\n"
    problem = make_problem(kind, evaluator=script, limits={"wall_s": 60})
    results = sandbox.evaluate(problem, ["x = 1"] * 2, seeds=[0, 0], timeout_s=0.7)
    assert [(e.failure.kind, e.failure.reason) for e in results] == [(FailureKind.TIMEOUT, "batch_deadline")] * 2


def test_one_broker_serves_several_threads(sandbox, echo):
    rewards: list[object] = []

    def work() -> None:
        rewards.extend(e.rewards for e in sandbox.evaluate(echo, [GOOD] * 4, seeds=[0] * 4))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rewards == [(1.0,)] * 16


def test_a_worker_survives_a_fork(sandbox, echo):
    assert sandbox.evaluate(echo, [GOOD], seeds=[0])[0].rewards == (1.0,)
    pid = os.fork()
    if pid == 0:
        right = sandbox.evaluate(echo, [GOOD], seeds=[0])[0].rewards == (1.0,)
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_is_preloaded_and_missing_is_the_evaluators_own_trouble(sandbox, make_problem):
    problem = make_problem("cases", cases=[{"input": [1], "expected": 1}], preload=["numpy", "no_such_module"])
    with pytest.raises(EvaluatorUnavailableError, match=r"preloads 'no_such_module'.*No module named"):
        sandbox.evaluate(problem, [GOOD], seeds=[0])


def test_what_is_preloaded_is_there_and_nothing_else_of_the_project(sandbox, make_problem):
    program = "import sys\ndef solve(name):\n    return name in sys.modules\n"
    cases = [{"input": ["wave"], "expected": True}, {"input": ["numpy"], "expected": False}]
    cases += [{"input": ["speciate"], "expected": False}, {"input": ["evaluators"], "expected": False}]
    problem = make_problem("cases", cases=cases, preload=["wave"])
    assert sandbox.evaluate(problem, [program], seeds=[0])[0].rewards == (1.0,)


def test_modules_that_start_threads_cannot_be_preloaded(sandbox, make_problem, monkeypatch, tmp_path):
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "busy.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    tmp_path.chmod(0o755)
    monkeypatch.syspath_prepend(str(site))
    problem = make_problem("cases", cases=[{"input": [1], "expected": 1}], preload=["busy"])
    with (
        closing(SandboxEvaluator("unsafe")) as unsafe,
        pytest.raises(EvaluatorUnavailableError, match="busy starts 1 threads"),
    ):
        unsafe.evaluate(problem, [GOOD], seeds=[0])


@pytest.fixture
def supervisors(monkeypatch):
    started, start = [], ZygotePool.start
    monkeypatch.setattr(ZygotePool, "start", lambda pool, needs: started.append(needs) or start(pool, needs))
    return started


def test_quick_programs_of_a_batch_share_supervisors(sandbox, echo, supervisors):
    for batch in range(1, 21):  # on a busy machine all programs of a batch may be slow
        assert [e.rewards for e in sandbox.evaluate(echo, [GOOD] * 16, seeds=[0] * 16)] == [(1.0,)] * 16
        if batch <= len(supervisors) < 16 * batch:
            return
    pytest.fail("every program had a supervisor of its own")


def test_a_supervisor_that_measured_a_program_serves_no_other(sandbox, echo, supervisors):
    slow = f"import time\ntime.sleep(0.1)\n{GOOD}"
    assert [e.rewards for e in sandbox.evaluate(echo, [slow] * 3, seeds=[0] * 3)] == [(1.0,)] * 3
    assert len(supervisors) == 3


def test_who_loses_the_sandbox_is_evaluated_again(sandbox, make_problem):
    slow = "import time\ndef solve(x):\n    time.sleep(0.7)\n    return x\n"
    problem = make_problem("cases", cases=[{"input": [1], "expected": 1}], limits={"wall_s": 20})
    assert sandbox.evaluate(problem, [GOOD], seeds=[0])[0].rewards == (1.0,)
    (zygote,) = sandbox.zygotes
    killer = threading.Timer(0.3, os.kill, (zygote, signal.SIGKILL))
    killer.start()
    assert [e.rewards for e in sandbox.evaluate(problem, [slow, GOOD], seeds=[0, 0])] == [(1.0,)] * 2
    killer.join()
    assert sandbox.zygotes != [zygote]


@pytest.fixture
def unsafe() -> Iterator[SandboxEvaluator]:
    with closing(SandboxEvaluator("unsafe")) as sandbox:
        yield sandbox


def test_an_interpreter_that_does_not_start_is_the_evaluators_own_trouble(unsafe, echo, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.executable", str(tmp_path / "missing"))
    with pytest.raises(EvaluatorUnavailableError, match="missing"):
        unsafe.evaluate(echo, [GOOD], seeds=[0])
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(broken))
    with pytest.raises(EvaluatorUnavailableError, match="no such library"):
        unsafe.evaluate(echo, [GOOD], seeds=[0])


def test_descriptors_do_not_leak(sandbox, echo):
    sandbox.evaluate(echo, [GOOD], seeds=[0])
    before = len(list(Path("/proc/self/fd").iterdir()))
    sandbox.evaluate(echo, [GOOD, "import os\nos._exit(1)", ""], seeds=[0] * 3)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_supervisors_keep_no_socket_of_the_zygote_however_many_files_are_open(echo):
    files = [os.dup(0) for _ in range(100)]  # the next one has a number that supervisors keep
    sandbox = SandboxEvaluator("unsafe")
    try:
        sandbox.evaluate(echo, [GOOD], seeds=[1])
        (zygote,) = sandbox.zygotes
        kept = {int(each.name): str(each.readlink()) for each in Path(f"/proc/{zygote}/fd").iterdir()}
        assert max(number for number, what in kept.items() if what.startswith("socket:")) < LOW_FDS
    finally:
        sandbox.close()
        for file in files:
            os.close(file)
