"""Cost of an evaluation in each tier, compared with a bare interpreter, and growth over many evaluations."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import psutil

from benchmarks.parts import CONSOLE, median, show
from evaluators.contained import kernel
from evaluators.evaluator import SandboxEvaluator
from evaluators.tiers.cgroup import delegated
from evaluators.tiers.launch import environment
from evaluators.tiers.zygote import Zygote
from speciate.domain.problem import Problem
from speciate.settings import Settings

ROUNDS = 60
SLOW_ROUNDS = 15
BATCH = 16
TEXTS = 200
CALLS = 1_000
WORKERS = 2
SPIN_S = 4.0
SPIN_ROUNDS = 3
MIXED_BATCH = 64
SAMPLE_EVERY = 5_000
ENDURANCE = 100_000

PROGRAM = "def solve(x): return 2 * x"
INPUTS = (1, 2, 3, 4)

_NUMPY = ("numpy",)
_BARE, _BARE_NUMPY = "python -I", "python -I, numpy"
_CHILD = (
    "import sys, json; order = json.load(sys.stdin); space = {}; exec(order['program'], space);"
    "print(json.dumps([space['solve'](x) for x in order['inputs']]))"
)
_LAST_RELEASE = {
    "tier A, single": 0.50,
    f"tier A, batch of {BATCH}": 0.485,
    "tier B, single": 0.49,
    f"tier B, batch of {BATCH}": 0.46,
    "relay, tier A": 20.6,
    "relay, tier B": 22.2,
}
"""Processor time of the last release as a multiple of ``python -I`` in the same run; of the relay, of 1,000 calls."""

_SETTLE_S = 0.2
_LONG = {"wall_s": 60, "cpu_s": 60}
_CLOCKS = ("wall_ms", "cpu_ms")
_SLACK_MB = 2.0  # a heap settles; a leak of 100 bytes an evaluation would be 10 MB in 100,000


def run(settings: Settings) -> None:
    """Compare an evaluation in every tier with a bare interpreter; then throughput, other kinds and the zygote."""
    with _own_temporary_folder(settings):
        goals = [*_side_by_side(), *_throughput(), *_kinds(), *_relay(), *_zygotes()]
    _show_goals(goals)


def endurance(settings: Settings, evaluations: int = ENDURANCE) -> None:
    """Evaluate good and bad programs for a long time and look for anything that grows.

    Args:
        settings: Where temporary files go.
        evaluations: How many in tier A; half as many in tier B.
    """
    with _own_temporary_folder(settings) as folder:
        kernel.adopt_orphans()  # what a zygote loses shall be counted here
        goals = [*_endure("A", evaluations, folder), *_endure("B", evaluations // 2, folder)]
    _show_goals(goals)


# ---------------------------------------------------------------- one evaluation, side by side


@dataclass
class Samples:
    """Measurements of one variant, per evaluation."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.wall_ms, n=20, method="inclusive")[-1]


@dataclass(frozen=True)
class Goal:
    """A target and its measurement."""

    what: str
    goal: str
    measured: float
    reached: bool


def _side_by_side() -> list[Goal]:
    with contextlib.ExitStack() as stack:
        account = stack.enter_context(_account())
        a, b, unsafe = (stack.enter_context(closing(SandboxEvaluator(tier))) for tier in ("A", "B", "unsafe"))
        numpy = f"import numpy; {_CHILD}"
        variants: dict[str, tuple[int, Callable[[], object]]] = {
            _BARE: (1, partial(_interpret, (), _CHILD)),
            _BARE_NUMPY: (1, partial(_interpret, (), numpy)),
            "bubblewrap, python -I, numpy": (1, partial(_interpret, bubblewrap(), numpy)),
            "tier A, single": (1, partial(_evaluate, a, _cases(), 1)),
            f"tier A, batch of {BATCH}": (BATCH, partial(_evaluate, a, _cases(), BATCH)),
            "tier B, single": (1, partial(_evaluate, b, _cases(), 1)),
            f"tier B, batch of {BATCH}": (BATCH, partial(_evaluate, b, _cases(), BATCH)),
            f"unsafe, batch of {BATCH}": (BATCH, partial(_evaluate, unsafe, _cases(), BATCH)),
        }
        samples = _interleave(variants, ROUNDS, account)
    walls = {name: median(each.wall_ms) for name, each in samples.items()}
    show(
        f"One evaluation of a trivial program with {len(INPUTS)} cases; {ROUNDS} rounds, all variants in each",
        ["", "wall ms, median", "p95", "CPU ms", f"x {_BARE}", "x with numpy"],
        [
            (
                name,
                walls[name],
                each.p95,
                median(each.cpu_ms) if each.cpu_ms else "-",
                walls[name] / walls[_BARE],
                walls[name] / walls[_BARE_NUMPY],
            )
            for name, each in samples.items()
        ],
        "All tiers have numpy preloaded. A batch counts as one sample: its time over its evaluations. CPU is of every"
        f" process involved, from a control group. {_load()}",
    )
    return [
        goal
        for name in ("tier A, single", f"tier A, batch of {BATCH}")
        for goal in (
            *_cpu_goals(samples, (name, name.replace("A", "B"))),
            _at_most(f"{name}: median, ms", 10, walls[name]),
            _at_most(f"{name}: p95, ms", 25, samples[name].p95),
            _at_most(f"{name}: x {_BARE}", 0.8, walls[name] / walls[_BARE]),
            _at_most(f"{name}: x {_BARE_NUMPY}", 0.25, walls[name] / walls[_BARE_NUMPY]),
        )
    ]


def _cpu_goals(samples: dict[str, Samples], names: Sequence[str]) -> Iterator[Goal]:
    """Compare processor time with that of the last release, each in units of a bare interpreter in the same run."""
    if samples[_BARE].cpu_ms:
        for name in names:
            ratio = median(samples[name].cpu_ms) / median(samples[_BARE].cpu_ms)
            yield _at_most(f"{name}: CPU, x last release", 0.4, ratio / _LAST_RELEASE[name])


def _interleave(
    variants: dict[str, tuple[int, Callable[[], object]]], rounds: int, account: Callable[[], float] | None = None
) -> dict[str, Samples]:
    """Call every variant once in each round; variants are given with how many evaluations a call is."""
    for _, call in variants.values():
        call()
    samples: defaultdict[str, Samples] = defaultdict(Samples)
    for _ in range(rounds):
        for name, (count, call) in variants.items():
            before, at = account() if account else 0.0, time.perf_counter()
            call()
            samples[name].wall_ms.append((time.perf_counter() - at) / count * 1000)
            if account:
                time.sleep(0.01)  # supervisors end a moment after their last word
                samples[name].cpu_ms.append((account() - before) / count * 1000)
    return samples


@contextlib.contextmanager
def _account() -> Iterator[Callable[[], float] | None]:
    """Yield a clock of the CPU seconds of this process and its descendants, or None without a control group.

    A zygote ignores SIGCHLD, so the kernel does not charge its children to any parent. Only a control group includes
    them. A delegated group is read as a whole, because contained processes get groups inside it.
    """
    if (given := delegated()) is not None:
        yield partial(_used, given)
        return
    me = str(os.getpid())
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        mount = next(where for _, where, kind, *_ in mounts if kind == "cgroup2")
        own = Path("/proc/self/cgroup").read_text().partition("0::")[2].splitlines()[0]
        group = Path(mount + own, f"speciate-bench-{me}")
        group.mkdir()
        (group / "cgroup.procs").write_text(me)
    except (OSError, StopIteration, IndexError) as error:
        CONSOLE.print(f"No processor time: no control group can be made here ({error!r}).")
        yield None
        return
    try:
        yield partial(_used, group)
    finally:
        (group.parent / "cgroup.procs").write_text(me)
        group.rmdir()


def _used(group: Path) -> float:
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6


def _interpret(prefix: Sequence[str], code: str) -> None:
    order = json.dumps({"program": PROGRAM, "inputs": INPUTS})
    argv = [*prefix, sys.executable, "-I", "-c", code]
    done = subprocess.run(argv, input=order, stdout=subprocess.PIPE, text=True, check=True, env=environment(1))
    if json.loads(done.stdout) != [2 * x for x in INPUTS]:
        raise RuntimeError(f"{argv[0]} answered {done.stdout!r}")


def bubblewrap() -> list[str]:
    """Return the command line that runs this interpreter in a bubblewrap of its own."""
    shown = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", sys.base_prefix, sys.prefix)
    argv = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    argv += ["--tmpfs", "/tmp"]  # before the paths: a checkout may lie there
    for path in shown:
        argv += ["--ro-bind-try", path, path]
    return [*argv, "--proc", "/proc", "--dev", "/dev", "--chdir", "/", "--"]


def _evaluate(sandbox: SandboxEvaluator, problem: Problem, count: int, program: str = PROGRAM) -> None:
    for evaluation in sandbox.evaluate(problem, [program] * count, seeds=[0] * count):
        if evaluation.rewards != (1.0,):
            raise RuntimeError(f"a good program failed in tier {sandbox.tier}: {evaluation}")


def _problem(kind: str, **fields: object) -> Problem:
    common = {
        "slug": "trivial",
        "title": "Trivial",
        "objectives": [{"name": "score"}],
        "targets": [{"name": "all", "rule": "score >= 1", "unlock": True}],
    }
    return Problem.model_validate({**common, "kind": kind, **fields})


def _cases() -> Problem:
    return _problem("cases", cases=[{"input": [x], "expected": 2 * x} for x in INPUTS])


# ---------------------------------------------------------------- throughput


def _throughput() -> list[Goal]:
    rates: dict[str, list[float]] = {tier: [] for tier in ("A", "B", "unsafe")}
    with contextlib.ExitStack() as stack:
        spawn = get_context("spawn")
        workers = [stack.enter_context(ProcessPoolExecutor(1, mp_context=spawn)) for _ in range(WORKERS)]
        for _, tier in itertools.product(range(SPIN_ROUNDS), rates):
            begin = time.monotonic() + 3.0
            futures = [worker.submit(_spin, tier, begin) for worker in workers]
            rates[tier].append(sum(future.result() for future in futures))
    show(
        f"Throughput through the sandbox: {WORKERS} workers at once, batches of {BATCH}, {SPIN_ROUNDS} x {SPIN_S:g} s",
        ["", "evaluations/s, median", "least", "most"],
        [(tier, median(each), min(each), max(each)) for tier, each in rates.items()],
        _load(),
    )
    measured = median(rates["A"])
    return [Goal(f"tier A, {WORKERS} workers: evaluations/s", ">= 300", measured, measured >= 300)]


def _spin(tier: str, begin: float) -> float:
    """Evaluate batches from a moment on (``time.monotonic``), warm by then; return evaluations a second."""
    problem = _cases()
    with closing(SandboxEvaluator(tier)) as sandbox:
        _evaluate(sandbox, problem, BATCH)
        time.sleep(max(begin - time.monotonic(), 0))
        started, done = time.monotonic(), 0
        while time.monotonic() < started + SPIN_S:
            _evaluate(sandbox, problem, BATCH)
            done += BATCH
        return done / (time.monotonic() - started)


# ---------------------------------------------------------------- the other kinds


def _kinds() -> list[Goal]:
    body = "return {'score': candidate.call('solve', 1).unwrap() / 2}"
    scripted = _problem("evaluator", evaluator=f"def evaluate(candidate, context): {body}")
    data = _problem("data", evaluator="def score(text, context): return {'score': float(text)}")
    with contextlib.ExitStack() as stack:
        variants: dict[str, tuple[int, Callable[[], object]]] = {}
        for tier in ("A", "B"):
            sandbox = stack.enter_context(closing(SandboxEvaluator(tier)))
            for count in (1, BATCH):
                variants[f"evaluator, tier {tier}, batch of {count}"] = (
                    count,
                    partial(_evaluate, sandbox, scripted, count),
                )
            variants[f"data, tier {tier}, batch of {TEXTS}"] = TEXTS, partial(_evaluate, sandbox, data, TEXTS, "1")
        samples = _interleave(variants, SLOW_ROUNDS)
    show(
        f"Kinds with an author's script, one call into the candidate; {SLOW_ROUNDS} rounds",
        ["", "wall ms per evaluation, median", "p95"],
        [(name, median(each.wall_ms), each.p95) for name, each in samples.items()],
        f"The script is loaded once for a batch: in a batch of 1 its process is part of the evaluation. {_load()}",
    )
    names = (f"evaluator, tier A, batch of {count}" for count in (1, BATCH))
    return [_at_most(f"{name}: median, ms", 20, median(samples[name].wall_ms)) for name in names]


def _relay() -> list[Goal]:
    """Measure calls of a script into its candidate: an evaluation with 1,001 of them less one with a single call."""
    with contextlib.ExitStack() as stack:
        account = stack.enter_context(_account())
        variants: dict[str, tuple[int, Callable[[], object]]] = {_BARE: (1, partial(_interpret, (), _CHILD))}
        for tier, calls in itertools.product(("A", "B"), (1, CALLS + 1)):
            sandbox = stack.enter_context(closing(SandboxEvaluator(tier)))
            body = f"[candidate.call('solve', i).unwrap() for i in range({calls})]\n    return {{'score': 1}}"
            problem = _problem("evaluator", evaluator=f"def evaluate(candidate, context):\n    {body}", limits=_LONG)
            variants[f"tier {tier}, {calls} calls"] = 1, partial(_evaluate, sandbox, problem, 1)
        samples = _interleave(variants, SLOW_ROUNDS, account)
    rows, goals = [], []
    for tier in ("A", "B"):
        one, many = (samples[f"tier {tier}, {calls} calls"] for calls in (1, CALLS + 1))
        wall, cpu = (median(getattr(many, of)) - median(getattr(one, of)) if getattr(many, of) else 0 for of in _CLOCKS)
        rows.append((f"tier {tier}", wall / CALLS * 1000, cpu / CALLS * 1000))
        if account:
            ratio = cpu / median(samples[_BARE].cpu_ms) / _LAST_RELEASE[f"relay, tier {tier}"]
            goals.append(_at_most(f"relay, tier {tier}: CPU of a call, x last release", 1 / 3, ratio))
    show("A call of an author's script into the candidate", ["", "wall us", "CPU us"], rows, _load())
    return goals


# ---------------------------------------------------------------- the zygote


def _zygotes() -> list[Goal]:
    tiers = ("A", "B", "unsafe")
    cold: dict[str, list[float]] = {tier: [] for tier in tiers}
    again: dict[str, list[float]] = {tier: [] for tier in tiers}
    memory = {}
    with contextlib.ExitStack() as stack:
        sandboxes = {tier: stack.enter_context(closing(SandboxEvaluator(tier))) for tier in tiers}
        for sandbox in sandboxes.values():
            _evaluate(sandbox, _cases(), 1)
        for _, tier in itertools.product(range(SLOW_ROUNDS), tiers):
            at = time.perf_counter()
            zygote = Zygote(tier, _NUMPY, None)
            cold[tier].append((time.perf_counter() - at) * 1000)
            zygote.close()
            at = time.perf_counter()
            os.kill(sandboxes[tier].zygotes[0], signal.SIGKILL)
            _evaluate(sandboxes[tier], _cases(), 1)
            again[tier].append((time.perf_counter() - at) * 1000)
        for tier, sandbox in sandboxes.items():
            memory[tier] = _megabytes(sandbox.zygotes[0])
    show(
        f"The zygote with numpy, alone; {SLOW_ROUNDS} rounds",
        ["", "cold start ms", "p95", "kill -9, next evaluation ms", "p95", "PSS MB", "USS MB", "RSS MB"],
        [
            (
                tier,
                *(figure for each in (cold[tier], again[tier]) for figure in (median(each), Samples(each).p95)),
                *memory[tier],
            )
            for tier in tiers
        ],
        f"In tier A bubblewrap is what is killed; memory is that of the interpreter inside of it. {_load()}",
    )
    return [
        _at_most("tier A: next evaluation after kill -9, median ms", 300, median(again["A"])),
        *(_at_most(f"tier {tier}: zygote, PSS MB", 60, memory[tier][0]) for tier in ("A", "B")),
    ]


def _megabytes(pid: int) -> tuple[float, float, float]:
    """Return proportional, unique and resident memory of one process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    unique = kib["Private_Clean"] + kib["Private_Dirty"]
    return kib["Pss"] * 1024 / 1e6, unique * 1024 / 1e6, kib["Rss"] * 1024 / 1e6


# ---------------------------------------------------------------- endurance

MIX = (
    *(f"def solve(x): return {i} * x" for i in (2, 3, 4, 5)),
    "import numpy\ndef solve(x): return float(numpy.full(1000, x).sum())",
    "def solve(x): return 1 / 0",
    "def solve(x:",
    "def solve(x): return x\nimport ctypes; ctypes.string_at(0)",
    "import os\ndef solve(x): os._exit(3)",
    "import os\ndef solve(x): os.kill(os.getpid(), 9)",
    "import sys\ndef solve(x): sys.exit(x)",
    "def solve(x):\n    for i in range(20): open(f'left-{x}-{i}', 'w').write('x' * 10_000)\n    return 2 * x",
    "import tempfile\nkept = [tempfile.mkstemp() for _ in range(9)]\ndef solve(x): return 2 * x",
    "def solve(x): return print('much' * 50_000)",
    "import threading, time\ndef solve(x): threading.Thread(target=time.sleep, args=(9,)).start()",
    "def solve(x): return bytearray(1 << 34)",
)

_COLUMNS = ("processes", "fds sandbox", "fds zygote", "RSS sandbox MB", "RSS zygote MB", "temporary entries")


def _endure(tier: str, evaluations: int, folder: Path) -> list[Goal]:
    problem, rows, done = _cases(), [], 0
    programs = list(itertools.islice(itertools.cycle(MIX), MIXED_BATCH))
    started = time.monotonic()
    ends: defaultdict[str, int] = defaultdict(int)
    with closing(SandboxEvaluator(tier)) as sandbox:
        sandbox.evaluate(problem, programs, seeds=range(MIXED_BATCH))
        rows.append((0, *_state(sandbox, folder)))
        while done < evaluations:
            for evaluation in sandbox.evaluate(problem, programs, seeds=range(MIXED_BATCH)):
                ends[evaluation.failure.reason if evaluation.failure else "scored"] += 1
            done += MIXED_BATCH
            if done // SAMPLE_EVERY > (done - MIXED_BATCH) // SAMPLE_EVERY or done >= evaluations:
                rows.append((done, *_state(sandbox, folder)))
            if CONSOLE.is_terminal:
                CONSOLE.print(f"tier {tier}: {done:,} of {evaluations:,}", end="\r")
    seconds = time.monotonic() - started
    left = f"{len(_descendants())} processes, {len(list(folder.iterdir()))} temporary entries"
    growth = [last - first for first, last in zip(rows[0][1:], rows[-1][1:], strict=True)]
    show(
        f"Endurance in tier {tier}: good, crashing, exiting and file-writing programs, batches of {MIXED_BATCH}",
        ["evaluations", *_COLUMNS],
        [*rows, ("growth", *growth)],
        f"{done / seconds:.0f} evaluations/s. {_load()} Left after closing: {left}. How they ended: {dict(ends)}",
    )
    kinds: dict[bool, list[float]] = {False: [], True: []}
    for name, more in zip(_COLUMNS, growth, strict=True):
        kinds["MB" in name].append(more)
    return [
        _at_most(f"tier {tier}, {done:,} evaluations: growth of any number", 0, max(kinds[False])),
        _at_most(f"tier {tier}, {done:,} evaluations: growth of any memory, MB", _SLACK_MB, max(kinds[True])),
    ]


def _state(sandbox: SandboxEvaluator, folder: Path) -> tuple[float, ...]:
    time.sleep(_SETTLE_S)  # the last supervisor ends a moment after its last word
    processes = psutil.Process(), psutil.Process(sandbox.zygotes[0])
    return (
        len(_descendants()),
        *(process.num_fds() for process in processes),
        *(_megabytes(process.pid)[2] for process in processes),
        len(list(folder.rglob("*"))),
    )


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


# ---------------------------------------------------------------- what all share


@contextlib.contextmanager
def _own_temporary_folder(settings: Settings) -> Iterator[Path]:
    """Use a private folder for temporary files."""
    folder = settings.data_dir.with_name("tmp")
    folder.mkdir()
    folder.chmod(0o1777)
    tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = None


def _at_most(what: str, goal: float, measured: float) -> Goal:
    return Goal(what, f"<= {goal:g}", measured, measured <= goal)


def _load() -> str:
    return f"Load {psutil.getloadavg()[0]:.1f}."


def _show_goals(goals: Sequence[Goal]) -> None:
    rows = [(g.what, g.goal, g.measured, "reached" if g.reached else "NOT REACHED") for g in goals]
    show("Goals", ["", "goal", "measured", ""], rows)
