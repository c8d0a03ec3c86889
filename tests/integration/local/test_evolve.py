"""``speciate evolve`` and ``speciate.evolve`` on real parts: PostgreSQL, the sandbox, a process per command."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import speciate
from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.domain.run import RunState
from speciate.evolution.functions import LoadedCandidate, ScoreFunction
from speciate.local.engine import local_client
from speciate.problems.loader import known_problems
from speciate.settings import load_settings

PROGRAM = "# EVOLVE-BLOCK-START\ndef solve():\n    return 0.4\n# EVOLVE-BLOCK-END\n"
EVALUATOR = """
import runpy
def evaluate(path):
    return {"combined_score": 1 - abs(runpy.run_path(path)["solve"]() - 0.7), "speed": 1.0}
"""
# A shell starts background jobs with SIGINT ignored, and a child inherits that.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from speciate.cli import main; main()"


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evolve-") as folder:
        yield Path(folder)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "nearest"
    folder.mkdir()
    (folder / "initial_program.py").write_text(PROGRAM)
    (folder / "evaluator.py").write_text(EVALUATOR)
    return folder


def command(data_dir: Path, folder: Path, *arguments: object, verb: str = "evolve") -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPECIATE_")}
    environment |= {"HOME": str(folder), "SPECIATE_DATA_DIR": str(data_dir)}
    argv = [sys.executable, "-c", MAIN, verb, *map(str, arguments)]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder
    )


def test_a_command_improves_a_program_and_goes_on_after_an_interruption(data_dir: Path, task: Path) -> None:
    arguments = ("initial_program.py", "evaluator.py", "-n", "60", "--seed", "3")
    first = command(data_dir, task, *arguments, "--out", "better", "--json")
    assert first.stdout is not None
    run = json.loads(first.stdout.readline())["id"]
    for line in first.stdout:
        if json.loads(line).get("kind") == "batch.evaluated":
            first.send_signal(signal.SIGINT)
            break
    _, notes = first.communicate(timeout=120)
    assert first.returncode == 130
    assert "Scoring the seed program" in notes
    assert "same command" in notes
    assert json.loads((task / "better" / "best.json").read_text())["run"] == run
    second = command(data_dir, task, *arguments, "--out", "better", "--json")
    output, notes = second.communicate(timeout=180)
    assert second.returncode == 0, notes
    assert "Scoring" not in notes
    first_line, *_, last_line = map(json.loads, output.splitlines())
    assert (first_line["id"], last_line["id"], last_line["state"]) == (run, run, "completed")
    best = json.loads((task / "better" / "best.json").read_text())
    assert best["run"] == run
    assert best["rewards"]["combined_score"] > 0.7
    assert (task / "better" / "candidate.py").is_file()


def interrupted(process: subprocess.Popen[str]) -> str:
    """Interrupt a run in progress and return its id."""
    assert process.stdout is not None
    run: str = json.loads(process.stdout.readline())["id"]
    for line in process.stdout:
        if json.loads(line).get("kind") == "batch.evaluated":
            process.send_signal(signal.SIGINT)
            break
    _, notes = process.communicate(timeout=120)
    assert process.returncode == 130, notes
    return run


def test_a_run_of_an_older_version_of_its_problem_goes_on(data_dir: Path, task: Path) -> None:
    arguments = ("initial_program.py", "evaluator.py", "-n", "60", "--seed", "5", "--no-out", "--json")
    run = interrupted(command(data_dir, task, *arguments))
    (task / "evaluator.py").write_text(EVALUATOR.replace("0.7", "0.8"))
    other = command(data_dir, task, *arguments)
    output, notes = other.communicate(timeout=180)
    assert other.returncode == 0, notes
    assert json.loads(output.splitlines()[0])["id"] != run
    (task / "evaluator.py").write_text(EVALUATOR)
    again = command(data_dir, task, *arguments)
    output, notes = again.communicate(timeout=180)
    assert again.returncode == 0, notes
    assert json.loads(output.splitlines()[0])["id"] == run


def test_the_end_of_a_watch_leaves_the_run_of_another_command_alone(data_dir: Path, task: Path) -> None:
    arguments = ("initial_program.py", "evaluator.py", "-n", "5000", "--seed", "6", "--no-out", "--json")
    executes = command(data_dir, task, *arguments)
    assert executes.stdout is not None
    run = json.loads(executes.stdout.readline())["id"]
    watches = command(data_dir, task, "watch", run, "--no-out", "--json", verb="runs")
    assert watches.stdout is not None
    watches.stdout.readline()
    notes = ""
    while watches.returncode is None:  # pydantic loses an interrupt that arrives while it calls a discriminator
        watches.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            _, notes = watches.communicate(timeout=10)
    assert watches.returncode == 130
    assert "paused" not in notes
    assert executes.poll() is None
    executes.send_signal(signal.SIGINT)
    executes.communicate(timeout=120)
    assert executes.returncode == 130
    cancels = command(data_dir, task, "cancel", run, verb="runs")
    assert "cancelled" in cancels.communicate(timeout=60)[0]


def test_an_estimate_comes_before_the_run_and_stays_with_it(data_dir: Path, task: Path) -> None:
    arguments = ("initial_program.py", "evaluator.py", "-n", "8", "--seed", "4", "--estimate", "--json")
    only = command(data_dir, task, *arguments)
    output, notes = only.communicate(timeout=120)
    assert (only.returncode, len(output.splitlines())) == (0, 1), notes
    assert "--yes starts the run" in notes
    estimate = json.loads(output)
    assert estimate["evaluations"] == {"low": 8, "expected": 8, "high": 8}
    started = command(data_dir, task, *arguments, "--yes")
    output, notes = started.communicate(timeout=180)
    assert started.returncode == 0, notes
    assert json.loads(output.splitlines()[1])["estimate"]["evaluations"] == estimate["evaluations"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("initial_program.py", "missing.py"), 5, "missing.py"),
        (("initial_program.py", "evaluator.py", "-n", "0"), 2, "-n"),
        (("no-such-problem",), 5, "no-such-problem"),
        (("initial_program.py", "evaluator.py", "--minimize", "loss"), 4, "combined_score, speed"),
    ],
)
def test_a_mistake_is_told_with_its_place(
    data_dir: Path, task: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    process = command(data_dir, task, *arguments)
    output, notes = process.communicate(timeout=120)
    assert words in notes
    assert process.returncode == code, (output, notes)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--model", "openai/gpt-5-mini"), 4, "OPENAI_API_KEY"),
        (("--agent", "claud -p"), 3, "there is no program 'claud'"),
        (("--out", "."), 6, "holds other files"),
        (("--agent", "cat", "--dollars", "5"), 4, "has no price"),
    ],
)
def test_a_mistake_in_an_option_is_told_before_the_evaluator_starts(
    data_dir: Path, task: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    process = command(data_dir, task, "initial_program.py", "evaluator.py", *options)
    output, notes = process.communicate(timeout=120)
    assert words in notes
    assert "Scoring" not in notes
    assert process.returncode == code, (output, notes)


def test_a_call_returns_programs_rewards_and_history(data_dir: Path, task: Path, tmp_path: Path) -> None:
    result = speciate.evolve(task, evaluations=20, data_dir=data_dir, progress=False)
    assert result.seed["combined_score"] == pytest.approx(0.7)
    assert result.changes["combined_score"] >= 0
    assert len(result.history) == 20
    assert result.front[0].program == result.best.program
    path = result.save(tmp_path / "saved")
    assert path.read_text() == result.best.program
    assert "NaN" not in (tmp_path / "saved" / "history.jsonl").read_text()
    assert len((tmp_path / "saved" / "history.jsonl").read_text().splitlines()) == 20
    again = speciate.evolve(task, evaluations=3, data_dir=data_dir, progress=False)
    assert again.save(tmp_path / "saved").read_text() == again.best.program
    assert len((tmp_path / "saved" / "history.jsonl").read_text().splitlines()) == 3
    (tmp_path / "saved" / "mine.txt").write_text("")
    with pytest.raises(ConflictError, match="not empty"):
        again.save(tmp_path / "saved")
    assert "combined_score" in result._repr_html_()
    assert repr(result.run) == f"<run {result.run.id}, completed, 20 evaluations>"
    assert repr(result.front[0]) == f"<candidate {result.best.number}: {result.best.rewards}>"


def near(candidate: LoadedCandidate) -> dict[str, object]:
    return {"loss": abs(candidate.call("solve") - 7), "note": "closer to seven is better"}


def test_a_function_scores_candidates_that_run_in_the_sandbox(data_dir: Path) -> None:
    async def search() -> speciate.Result:
        fields = {"minimize": "loss", "data_dir": data_dir, "progress": False}
        result = await speciate.evolve_async("def solve(): return 0.4", near, evaluations=12, **fields)
        later = speciate.evolve("def solve(): return 0.6", near, evaluations=2, **fields)  # in the same task
        assert later.run.state is RunState.COMPLETED
        return result

    result = asyncio.run(search())
    assert result.seed == {"loss": pytest.approx(6.6)}
    assert result.best.rewards is not None
    assert result.best.rewards["loss"] <= 6.6
    assert {row["tier"] for row in result.history.to_dict("records")} == {"attested"}
    assert "lease-keeper" not in {thread.name for thread in threading.enumerate()}


def test_a_cancelled_call_returns_once_its_run_is_paused(data_dir: Path) -> None:
    begun = threading.Event()

    def score(candidate: LoadedCandidate) -> float:
        if candidate.program != PROGRAM:
            begun.set()
            time.sleep(0.05)
        return float(candidate.call("solve"))

    async def cancelled() -> None:
        fields = {"seed": 10, "evaluations": 2000, "data_dir": data_dir, "progress": False}
        search = asyncio.create_task(speciate.evolve_async(PROGRAM, score, **fields))
        await asyncio.to_thread(begun.wait, 60)
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        assert not [thread for thread in threading.enumerate() if thread.name == "score"]
        with local_client(load_settings(data_dir=data_dir)) as client:
            assert [run.record.spec.seed for run in client.runs.list(state=RunState.PAUSED)] == [10]

    asyncio.run(cancelled())


def test_a_noisy_function_has_one_number_everywhere_and_another_one_begins_a_new_run(
    data_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)

    def search(scale: float, evaluations: int = 12) -> speciate.Result:
        def score(candidate: LoadedCandidate) -> float:
            return float(candidate.call("solve") + scale * rng.random())

        return speciate.evolve(PROGRAM, score, seed=9, evaluations=evaluations, data_dir=data_dir)

    result = search(0.5)
    (shown,) = result.run.best_rewards
    assert result.best.rewards == result.front[0].rewards == {"score": shown.value}
    assert result.seed == {"score": shown.seed}
    assert f"run {result.run.id}" in capfd.readouterr().err


def test_a_paused_run_of_a_function_says_that_it_continues(data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    interrupts = [KeyboardInterrupt]

    def search(goal: float) -> speciate.Result:
        def score(candidate: LoadedCandidate) -> float:
            return -abs(goal - candidate.call("solve"))

        return speciate.evolve(PROGRAM, score, seed=8, evaluations=30, data_dir=data_dir)

    def interrupted(*_: object) -> None:
        if interrupts:
            raise interrupts.pop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScoreFunction, "check", interrupted)
        with pytest.raises(KeyboardInterrupt):
            search(0.7)
    other, same = search(0.8), search(0.7)
    notes = capfd.readouterr().err
    assert notes.count("Continues the paused run") == 1
    assert f"Continues the paused run {same.run.id}; new=True starts anew." in notes
    assert other.run.id != same.run.id
    process = command(data_dir, data_dir, "resume", same.run.id, verb="runs")
    _, notes = process.communicate(timeout=120)
    assert "the same call of speciate.evolve" in notes


def test_a_call_with_the_inputs_of_a_run_in_progress_names_it(data_dir: Path) -> None:
    refusals: list[str] = []

    def score(candidate: LoadedCandidate) -> float:
        if candidate.program != PROGRAM and not refusals:
            try:
                search()
            except ConflictError as error:
                refusals.append(str(error))
        return float(candidate.call("solve"))

    def search() -> speciate.Result:
        return speciate.evolve(PROGRAM, score, evaluations=4, data_dir=data_dir, progress=False)

    run = search().run.id
    (refusal,) = refusals
    assert refusal.startswith(f"a run with these inputs is in progress: {run}.")


def test_a_failing_function_is_an_error_with_its_place(data_dir: Path) -> None:
    def score(program_path: str) -> float:
        raise ZeroDivisionError(program_path)

    with pytest.raises(InvalidInputError, match=rf"score\(\) fails on the seed program.*{__file__}:\d+"):
        speciate.evolve(PROGRAM, score, evaluations=5, data_dir=data_dir)


def test_a_budget_of_one_evaluates_the_seed_program(data_dir: Path, task: Path) -> None:
    config = task / "other.yaml"
    config.write_text("max_iterations: 1\nrandom_seed: 6\nllm: {models: [{name: m}], temperature: 0.5}\n")
    result = speciate.evolve(task, config=config, data_dir=data_dir, progress=False)
    assert (result.run.spec.seed, result.run.spec.budget.evaluations) == (6, 1)
    assert result.best.number == 1
    assert result.changes == {"combined_score": 0.0, "speed": 0.0}


def test_the_notebook_runs(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_DATA_DIR", str(data_dir))
    notebook = json.loads((Path(__file__).parents[3] / "docs" / "evolve.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert list(names["result"].seed) == ["error", "length"]
    assert len(names["result"].history) == 40


def test_a_call_estimates_and_starts_nothing(data_dir: Path, task: Path) -> None:
    estimate = speciate.estimate(task, evaluations=9, data_dir=data_dir)
    assert (estimate.evaluations.low, estimate.evaluations.high) == (9, 9)
    assert estimate.dollars is None
    with local_client(load_settings(data_dir=data_dir), warm=False) as client:
        assert all(run.record.spec.budget.evaluations != 9 for run in client.runs.list(group="all"))


def test_run_takes_a_directory(data_dir: Path, task: Path) -> None:
    shutil.copytree(known_problems()["circle-packing-26"], task / "mine")
    process = command(data_dir, task, "./mine", "-p", "mutator", "-b", "2", "--watch", "--json", verb="run")
    output, notes = process.communicate(timeout=120)
    assert json.loads(output.splitlines()[0])["problem"] == "circle-packing-26", notes


def test_a_run_that_learns_needs_a_service(data_dir: Path, task: Path) -> None:
    options = ("-p", "maze-base", "-b", "2", "--learn", "vector_max_at_k")
    process = command(data_dir, task, "maze-0", *options, verb="run")
    _, notes = process.communicate(timeout=120)
    assert process.returncode == 4
    assert "speciate up --learn" in notes


def test_two_commands_run_at_once(data_dir: Path, task: Path) -> None:
    both = [command(data_dir, task, "circle-packing-26", "-n", "30", "--seed", seed, "--json") for seed in (1, 2)]
    outputs = [process.communicate(timeout=240) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    runs = {json.loads(output.splitlines()[0])["id"] for output, _ in outputs}
    assert len(runs) == 2


def test_ctrl_c_ends_the_score_of_the_seed_program(data_dir: Path) -> None:
    code = (
        "import signal, speciate, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def score(path):\n    print(flush=True)\n    time.sleep(300)\n"
        f"speciate.evolve({PROGRAM!r}, score, data_dir={str(data_dir)!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode


def test_a_folder_that_cannot_be_written_and_a_silent_server_lose_nothing(data_dir: Path, task: Path) -> None:
    (task / "file").write_text("")
    options = ("-n", "5", "--target", "combined_score >= 0.6", "--out", "file/better", "--wall-s", "20")
    process = command(data_dir, task, "initial_program.py", "evaluator.py", *options)
    shown, notes = process.communicate(timeout=120)
    assert "file/better cannot be written" in notes
    assert "up to 20 s" in notes
    assert "note: the seed program already meets combined_score >= 0.6" in notes
    assert "Go on from it with" not in notes
    assert "No model: programs are changed at random" in shown
    process = command(data_dir, task, "initial_program.py", "evaluator.py", "--model", "http://127.0.0.1:9/v1#m")
    _, notes = process.communicate(timeout=120)
    assert "127.0.0.1:9" in notes
    assert process.returncode not in (0, 1)


def test_external_evaluation_needs_a_service(data_dir: Path, task: Path) -> None:
    text = Path(__file__).parents[3].joinpath("docs/howto/evaluate-on-your-machines.md").read_text()
    (task / "fast-sum").mkdir()
    (task / "fast-sum" / "problem.toml").write_text(text.split("```toml\n")[1].split("```")[0])
    for verb, options in {"evolve": (), "run": ("-p", "mutator", "-b", "5")}.items():
        process = command(data_dir, task, "./fast-sum", *options, verb=verb)
        _, notes = process.communicate(timeout=120)
        assert process.returncode == 4
        assert "`speciate up` elsewhere, and `speciate evaluate --problem fast-sum --capability linux -- " in notes


def test_printed_commands_find_another_data_directory(data_dir: Path, task: Path) -> None:
    options = ("-n", "5", "--no-out", "--data-dir", data_dir)
    process = command(task / "default", task, "initial_program.py", "evaluator.py", *options)
    _, notes = process.communicate(timeout=180)
    (printed,) = re.findall(r"Print it with: (.*)", notes)
    assert printed.startswith(f"SPECIATE_DATA_DIR={data_dir} speciate best ")
    _, facts = command(data_dir, task, printed.split()[-1], verb="best").communicate(timeout=120)
    assert "candidate" in facts
    assert "http" not in facts  # no service shows the page


def test_a_program_that_is_no_text_is_named(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    with pytest.raises(InvalidInputError, match=r"latin\.py is not UTF-8 text"):
        speciate.evolve(tmp_path / "latin.py", near, evaluations=1, data_dir=data_dir)
