"""Which zygotes a pool keeps: none that cannot be used, none too many, and every one in which something runs."""

import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from evaluators.tiers.pool import MAX_ZYGOTES, ZygotePool
from evaluators.tiers.sandbox import ProcessRole, ProcessSpec
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.limits import Limits

MODULES = ["csv", "bisect", "heapq", "string", "colorsys", "wave"]


class FakeZygote:
    """A zygote without a process."""

    opened = threading.Event()

    def __init__(self, tier, preload, folders, site, cores, toolchains):
        self.preload, self.users, self.pid = preload, 0, hash(preload)
        self.missing = {"absent": "not there"} if "absent" in preload else {}
        self.alive = True
        if "slow" in preload:
            self.opened.wait(20)

    def start(self, needs, ended):
        if not self.alive:
            raise ConnectionResetError
        return SimpleNamespace(zygote=self, stop=ended)

    def close(self):
        self.alive = False


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setattr("evaluators.tiers.pool.Zygote", FakeZygote)
    FakeZygote.opened.clear()
    with closing(ZygotePool("B")) as pool:
        yield pool


def start(pool, *preload):
    return pool.start(ProcessSpec(ProcessRole.CANDIDATE, Limits(), preload))


def test_beyond_its_number_the_least_recently_used_are_closed(pool):
    made = []
    for module in MODULES:
        made.append(start(pool, module))
        made[-1].stop()
    assert [each.zygote.alive for each in made] == [False] * 2 + [True] * MAX_ZYGOTES


def test_those_in_which_something_runs_are_not(pool):
    running = [start(pool, module) for module in MODULES]
    again = start(pool, MODULES[0])
    assert all(each.zygote.alive for each in running)
    for each in running:
        each.stop()
    assert start(pool, "json").zygote.alive
    assert again.zygote.alive
    assert len(pool.pids) == MAX_ZYGOTES


def test_one_that_lacks_a_module_is_not_kept(pool):
    kept = [start(pool, module) for module in MODULES[:MAX_ZYGOTES]]
    for each in kept:
        each.stop()
    for _ in range(2):
        with pytest.raises(EvaluatorUnavailableError, match="'absent'"):
            start(pool, "absent")
    assert all(each.zygote.alive for each in kept)


def test_a_slow_start_holds_up_only_who_wants_the_same(pool):
    started = []
    waiting = [threading.Thread(target=lambda: started.append(start(pool, "slow"))) for _ in range(2)]
    for thread in waiting:
        thread.start()
    other = threading.Thread(target=start, args=(pool, "json"))
    other.start()
    other.join(10)
    late = other.is_alive()
    FakeZygote.opened.set()
    for thread in (*waiting, other):
        thread.join()
    assert not late
    assert started[0].zygote is started[1].zygote


def test_one_that_has_died_is_replaced(pool):
    first = start(pool, "json")
    first.zygote.alive = False
    assert start(pool, "json").zygote is not first.zygote
    assert len(pool.pids) == 1


def test_an_evaluation_outlives_many_others(sandbox, make_problem):
    slow = make_problem("cases", cases=[{"input": [], "expected": 1}], preload=["json"], limits={"wall_s": 30})
    started, done = threading.Event(), []
    program = "import time\ndef solve():\n    time.sleep(2)\n    return 1\n"

    def work():
        started.set()
        done.append(sandbox.evaluate(slow, [program], seeds=[0])[0])

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    while not sandbox.zygotes:
        time.sleep(0.01)
    (own,) = sandbox.zygotes
    others = [make_problem("cases", cases=[{"input": [], "expected": 1}], preload=[module]) for module in MODULES]
    for problem in others:
        assert sandbox.evaluate(problem, ["def solve(): return 1\n"], seeds=[0])[0].rewards == (1.0,)
    kept = done or own in sandbox.zygotes
    thread.join()
    assert kept
    assert done[0].rewards == (1.0,)
    sandbox.evaluate(others[0], ["def solve(): return 1\n"], seeds=[0])
    assert len(sandbox.zygotes) == MAX_ZYGOTES
