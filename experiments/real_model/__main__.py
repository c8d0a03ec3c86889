"""Train and evaluate the declared policies; a killed command continues where it stopped when it is repeated.

1. ``python -m experiments.real_model run --model DIR --out DIR [--gpu] [--minutes M]``: check of the generator,
   warm-up with its gate, base, trainings, each with its evaluation, and the page.
2. ``python -m experiments.real_model report``: the page alone.

DIR is a folder of ``speciate models get smollm2-135m``. Weights go to ``--out``, answers to ``--evidence``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.real_model.plan import BASE, PLANS, PRIMARY, Job, Plan
from experiments.real_model.report import read_runs, write_page
from experiments.real_model.shared_sandbox import served_sandbox
from experiments.real_model.work import CHECK, WARMING, Work, say
from speciate.domain.errors import SpeciateError

_EVIDENCE: Final = Path(__file__).parents[2] / "docs" / "evidence"
_SIZES: Final = ("steps", "prompts", "problems", "answers")
_POLL_S: Final = 0.5
_MPS: Final = "nvidia-cuda-mps-control"
_PR_SET_PDEATHSIG: Final = 1


def main() -> int:
    """Do one step."""
    parser = argparse.ArgumentParser(prog="python -m experiments.real_model")
    parser.add_argument("step", choices=("run", "do", "report"))
    parser.add_argument("name", nargs="?", help="of `do`: check, warm-up, or an arm and its seed such as vpo-0")
    parser.add_argument("--model", type=Path, help="folder of `speciate models get smollm2-135m`")
    parser.add_argument("--out", type=Path, default=Path("real-model"), help="folder of weights (default real-model)")
    parser.add_argument("--evidence", type=Path, default=_EVIDENCE / "real-model", help="folder of answers")
    parser.add_argument("--page", type=Path, default=_EVIDENCE / "real-model.md", help="page of the results")
    parser.add_argument("--gpu", action="store_true", help="the plan for one H100 instead of that for two cores")
    parser.add_argument("--minutes", type=float, default=np.inf, help="start nothing that takes longer than is left")
    parser.add_argument("--seeds", type=int, help="training seeds, fewer or more than declared")
    for name in _SIZES:
        parser.add_argument(f"--{name}", type=int, help="another size than declared, to try the command")
    options = parser.parse_args()
    if options.step != "report":
        plan = _sized(PLANS["gpu" if options.gpu else "cpu"], options)
        work = Work(plan, options.model, options.out / plan.name, options.evidence / plan.name, gpu=options.gpu)
        if options.step == "do":
            try:
                work.do(options.name)
            except SpeciateError as error:
                raise SystemExit(str(error)) from None
            return 0
        _run(work, sys.argv[2:], time.monotonic() + 60 * options.minutes)
    write_page(options.page, options.evidence)
    return 0


def _sized(plan: Plan, options: argparse.Namespace) -> Plan:
    sizes: dict[str, Any] = {name: getattr(options, name) for name in _SIZES if getattr(options, name) is not None}
    if options.seeds is not None:
        sizes["runs"] = {
            arm: options.seeds if arm in PRIMARY else min(count, options.seeds) for arm, count in plan.runs.items()
        }
    return replace(plan, **sizes)


def _run(work: Work, options: Sequence[str], end: float) -> None:
    """Do the steps that are not done yet, some trainings at a time, each in a process of its own."""
    with served_sandbox() as sandbox, _shared_gpu(work) as gpu:
        environment = sandbox | gpu
        for name in (CHECK, WARMING):
            if not work.result(name).is_file() and (code := _start(name, options, environment).wait()):
                raise SystemExit(code)
        if not json.loads(work.result(WARMING).read_text("utf-8"))["passed"]:
            say("the gate of the warm-up was missed: nothing is trained")
            return
        _train(work, options, environment, end)


def _train(work: Work, options: Sequence[str], environment: Mapping[str, str], end: float) -> None:
    waiting = [job for job in work.plan.jobs() if not work.result(job.name).is_file()]
    running: dict[str, subprocess.Popen[bytes]] = {}
    failed = []
    try:
        while waiting or running:
            while waiting and len(running) < work.plan.at_once:
                job = waiting.pop(0)
                if time.monotonic() + 60 * _minutes(work, job) > end:
                    say(f"{job.name}: no time left")
                else:
                    running[job.name] = _start(job.name, options, environment)
            time.sleep(_POLL_S)
            failed += [name for name, process in running.items() if process.poll()]
            running = {name: process for name, process in running.items() if process.returncode is None}
    finally:
        for process in running.values():
            process.terminate()
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _start(name: str, options: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    say(f"{name}: begins")
    command = [sys.executable, "-m", "experiments.real_model", "do", name, *options]
    # Linux: a step ends with this process, however it is killed.
    tied = partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGKILL)
    return subprocess.Popen(command, env={**os.environ, **environment}, preexec_fn=tied)  # noqa: PLW1509


def _minutes(work: Work, job: Job) -> float:
    """Return how long a job will take: the mean of those of its arm that are done, or of all; 0 without any."""
    done = [run for run in read_runs(work.evidence) if (run.arm == BASE) == (job.arm == BASE)]
    alike = [run for run in done if run.arm == job.arm] or done
    return float(np.mean([run.about.get("minutes", 0) + run.about["evaluation_minutes"] for run in alike] or [0.0]))


@contextmanager
def _shared_gpu(work: Work) -> Iterator[dict[str, str]]:
    """Yield the environment in which processes compute on a GPU at the same time, if its daemon is installed."""
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if not work.gpu or shutil.which(_MPS) is None:
        yield environment
        return
    folder = (work.out / "mps").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    environment |= {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    subprocess.run([_MPS, "-d"], env={**os.environ, **environment}, check=False)
    try:
        yield environment
    finally:
        subprocess.run([_MPS], input=b"quit\n", env={**os.environ, **environment}, check=False)


if __name__ == "__main__":
    raise SystemExit(main())
