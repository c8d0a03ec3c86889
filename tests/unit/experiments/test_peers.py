"""The comparison with peers and the measurement of the door: model, score, processes and page."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from experiments.door.declaration import PROBLEMS, Task
from experiments.door.drivers.scoring import score
from experiments.door.endpoint import Endpoint
from experiments.door.measure import Sample, kill_main, spawn, watch
from experiments.door.peers import costs
from experiments.peers.__main__ import EARLIER, PAGE, bundles_beside
from experiments.peers.declaration import EVALUATIONS, tournament
from experiments.peers.page import page
from experiments.standin import ANY, FORGED_EVERY, FORGERY, MODEL, problem_of, programs_in, stand_in
from speciate.domain.candidate import Failure, FailureKind, Individual
from speciate.domain.policy import Policy, PolicyRole
from speciate.problems.loader import known_problems, load_problem
from speciate.prompts.evolve_blocks import find_blocks, with_contents
from speciate.prompts.mutation import build_prompt
from speciate.runs.engines import ends_of
from speciate.tournaments.bundle import verify
from tests.support.http_server import wait_for

FAULT_PROBLEM = PROBLEMS[0]
SEED = load_problem(known_problems()[FAULT_PROBLEM]).seed_program


def prompt_of(*programs: str, heading: str = "# Current Program") -> str:
    others = "\n".join(f"```python\n{program}\n```" for program in programs[1:])
    return f"# Prior programs\n{others}\n{heading}\n```python\n{programs[0]}\n```\n# Task\n```python\n# yours here\n```"


def ask(url: str, prompt: str, **fields: object) -> list[str]:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": prompt}], **fields}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body)) as reply:
        return [choice["message"]["content"] for choice in json.load(reply)["choices"]]


@pytest.mark.parametrize("heading", ["# Current program", "## Current Component", "## The program to change"])
def test_the_program_below_its_heading_is_changed(heading: str) -> None:
    one, two = SEED, SEED.replace("5.0", "6.5")
    assert programs_in(prompt_of(one, two, heading=heading), "") == ([f"{one}\n", f"{two}\n"], False)
    assert programs_in("Write a program.", SEED) == ([SEED], True)


def test_a_block_that_speciate_shows_is_changed_inside_its_program() -> None:
    problem = load_problem(known_problems()[FAULT_PROBLEM])
    policy = Policy(slug="m", kind="openai_compatible", model=MODEL, base_url="http://127.0.0.1:1/v1")
    around = find_blocks(problem.seed_program)
    parents = [
        Individual(
            n,
            with_contents(problem.seed_program, around, [f"def centres():\n    return {n}\n"]),
            rewards,
            failure,
            notes,
        )
        for n, rewards, failure, notes in (
            (3, None, Failure(FailureKind.CRASHED, "raised", "NameError: name 'n' is not defined"), {}),
            (5, (1.0, 0.1, 0.0), None, {"log": "circle 7 is the smallest"}),
        )
    ]
    prompt = build_prompt(problem, PolicyRole.MUTATE, parents, (), policy, np.random.default_rng(0))
    assert "\n```\nNameError" in prompt.text()
    programs, scratch = programs_in(prompt.text(), problem.seed_program)
    assert (programs, scratch) == ([parent.program for parent in parents], False)


def test_answers_depend_on_path_prompt_and_repetition_alone() -> None:
    with stand_in() as server:
        first = [ask(server.base_url(FAULT_PROBLEM, 1), prompt_of(SEED), n=2, seed=5) for _ in range(2)]
        other = ask(server.base_url(FAULT_PROBLEM, 2), prompt_of(SEED), n=2, seed=5)
        server.clear()
        assert [ask(server.base_url(FAULT_PROBLEM, 1), prompt_of(SEED), n=2, seed=5) for _ in range(2)] == first
    assert first[0] != first[1]
    assert first[0] != other
    assert all(text.startswith("```python\n") and SEED not in text for text in first[0])


def test_forged_answers_are_counted_and_stay_inside_the_block() -> None:
    with stand_in() as server:
        url = server.base_url(FAULT_PROBLEM, 1, forge=True)
        answers = [ask(url, prompt_of(SEED))[0] for _ in range(2 * FORGED_EVERY)]
        assert server.forged[f"{FAULT_PROBLEM}/1-forge"] == 2
    assert sum(FORGERY in text for text in answers) == 2


def test_requests_to_a_real_model_pass_through_and_their_tokens_count() -> None:
    task = Task("gepa", FAULT_PROBLEM, 1)
    with stand_in() as model, stand_in(model.base_url(FAULT_PROBLEM, 7)) as server:
        endpoint = Endpoint(server)
        texts = ask(endpoint.url_for(task), prompt_of(SEED))
        assert model.answers[f"{FAULT_PROBLEM}/7"] == 1
        assert endpoint.tokens(task) == (len(prompt_of(SEED)) // 4, len(texts[0]) // 4)
        assert ask(endpoint.url_for(Task("gepa", FAULT_PROBLEM, 1, "forge")), prompt_of(SEED))
        assert sum(model.answers.values()) == 1
        server.clear()
        assert endpoint.tokens(task) == (0, 0)
        server.upstream = "http://127.0.0.1:9"  # nothing listens
        with pytest.raises(urllib.error.HTTPError, match="502"):
            ask(endpoint.url_for(task), prompt_of(SEED))


def test_the_score_is_the_mean_of_normalized_objectives() -> None:
    ends = ends_of(load_problem(known_problems()["job-scheduling"]))
    assert set(ends) == {"slowdown", "late", "longest_wait"}
    assert score({"slowdown": 1.0, "late": 0.0, "longest_wait": 120.0}, ends) == pytest.approx(2 / 3)
    ends = ends_of(load_problem(known_problems()["circles-in-square-26"]))
    circles = {"sum_of_radii": 2.64, "smallest_radius": 0.1, "overlap": 0.0}
    assert score(circles, ends) == pytest.approx(1)
    assert score({**circles, "overlap": 0.1}, ends) == pytest.approx(0.1)


def test_the_adapter_scores_programs_as_the_service_does(tmp_path: Path) -> None:
    path = known_problems()["job-scheduling"]
    problem = load_problem(path)
    log = tmp_path / "log.jsonl"
    values = {"problem": str(path), "objectives": ends_of(problem), "log": str(log), "timeout_s": 5, "files": {}}
    adapter = Path(__file__).parents[3] / "experiments" / "door" / "drivers" / "adapter.py"
    programs = [problem.seed_program, "import time\ntime.sleep(30)\n", "raise SystemExit\n"]
    for number, program in enumerate(programs):
        (tmp_path / "program.py").write_text(program)
        arguments = ["--program_path", str(tmp_path / "program.py"), "--results_dir", str(tmp_path / str(number))]
        subprocess.run([sys.executable, adapter, *arguments], env={"PEER_RUN": json.dumps(values)}, check=True)
    good, slow, gone = (json.loads(line) for line in log.read_text().splitlines())
    assert good["score"] == score(good["rewards"], ends_of(problem)) > 0.2
    assert (slow["score"], gone["score"]) == (0, 0)
    assert "TimeoutError" in slow["error"]
    assert json.loads((tmp_path / "1" / "correct.json").read_text())["correct"] is False


BUSY = "import os, sys, time\nif os.fork() == 0:\n if os.fork() == 0:\n  {}\n os._exit(0)\ntime.sleep({})\n"
"""A program whose grandchild is an orphan at once."""


def test_a_tree_finds_what_outlives_its_main_process(tmp_path: Path) -> None:
    tree = spawn([sys.executable, "-c", BUSY.format("time.sleep(60)", 60)], {}, tmp_path / "log", limited=True)
    watch(tree, lambda: len(tree.members()), lambda: False, 60, stop_at=3)
    assert kill_main(tree, settle_s=0.2) == 1
    tree.process.wait()
    wait_for(lambda: not tree.members())


@pytest.mark.parametrize("grouped", [True, False])
def test_a_tree_counts_the_processor_time_of_ended_orphans(tmp_path: Path, *, grouped: bool) -> None:
    work = BUSY.format("[sum(range(1000000)) for _ in range(12)]; print(1, flush=True); os._exit(0)", 60)
    tree = spawn([sys.executable, "-c", work], {}, tmp_path / "log", limited=True)
    if not grouped:
        tree.group = None
    elif tree.group is None:
        pytest.skip("needs the right to create a control group")
    watch(tree, lambda: len((tmp_path / "log").read_text()), lambda: False, 60, stop_at=1)
    ended = watch(tree, lambda: 0, lambda: False, 0.3)
    tree.kill()
    tree.process.wait()
    assert ended[-1].processor_s > 0.1
    if not grouped:
        assert tree.processor_s() >= ended[-1].processor_s  # although the processes that held the times are gone
    wait_for(lambda: not tree.members())
    tree.kill()
    assert tree.group is None or not tree.group.folder.exists()


def test_the_page_follows_from_the_bundles_beside_it() -> None:
    assert page(bundles_beside(PAGE), MODEL, EARLIER) == PAGE.read_text()


@pytest.mark.parametrize("bundle", bundles_beside(PAGE), ids=lambda bundle: bundle.name)
def test_the_bundles_beside_the_page_are_verified_by_the_code_of_today(bundle: Path) -> None:
    with bundle.open("rb") as file:
        assert {check: faults for check, faults in verify(file).faults.items() if faults} == {}, "--reseal them"


def test_the_comparison_has_a_null_and_equal_budgets() -> None:
    for evaluations in EVALUATIONS:
        declared = tournament(evaluations, 23, 8)
        assert len({entrant.name for entrant in declared.entrants}) == 8
        assert [entrant.duplicate_of for entrant in declared.entrants if entrant.duplicate_of] == ["speciate"]


def test_a_prompt_names_its_problem_and_answers_depend_on_it_and_the_seed_alone() -> None:
    for slug, folder in known_problems().items():
        assert problem_of(f"You write programs.\n{load_problem(folder).description}\n# Current program") == slug
    with stand_in() as server:
        url = f"{server.url}/{ANY}/{ANY}/v1"
        prompt = load_problem(known_problems()[FAULT_PROBLEM]).description + prompt_of(SEED)
        first, again, other = (ask(url, prompt, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_costs_leave_the_start_out() -> None:
    samples = [Sample(0, 3, 0, 0), Sample(1, 4, 5, 1), Sample(2, 5, 9, 11), Sample(4, 8, 7, 21), Sample(9, 9, 0, 21)]
    assert costs(samples) == (4, 9)
