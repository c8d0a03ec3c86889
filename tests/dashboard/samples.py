"""Sample runs: problems with one, five and many objectives, searched by the real strategies with a cheap evaluator."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from speciate.domain.budget import Budget
from speciate.domain.campaign import Campaign
from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.declaration import DeclarationState
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.run import RunSpec
from speciate.domain.target import Target
from speciate.domain.tournament import Tournament
from speciate.policies import build_client
from speciate.runs.declarations import pin_campaign, pin_tournament
from speciate.runs.executor import WorkExecutor
from speciate.runs.start import prepare_run, start_run
from speciate.schema.policies import RunPolicies
from speciate.storage.stores import Stores
from workers.campaigns import CampaignController
from workers.tournaments import TournamentController

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
SEED = "a = 0.2\nb = 0.9\nc = 0.4\n\n\ndef solve(n):\n    if n > 3:\n        return a * n + b\n    return c\n"
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


def antenna() -> Problem:
    """A problem with four objectives and a constraint."""
    return Problem(
        slug="antenna-array",
        title="Antenna array with four conflicting aims",
        description="Place the elements of an array. " * 6,
        kind=ProblemKind.EVALUATOR,
        objectives=(
            Objective(name="gain", range=(0.0, 12.0), description="in dBi, along the axis"),
            Objective(name="sidelobe", direction=Direction.MINIMIZE, range=(0.0, 10.0)),
            Objective(name="bandwidth", range=(0.0, 1.0)),
            Objective(name="cost", direction=Direction.MINIMIZE, range=(0.0, 30.0)),
            Objective(name="overlap", direction=Direction.MINIMIZE, role=ObjectiveRole.CONSTRAINT, range=(0.0, 1.0)),
        ),
        targets=(
            Target(name="usable", rule="gain >= 5 and overlap <= 0"),
            Target(name="record", rule="gain >= 9 and sidelobe <= 2.5 and overlap <= 0", unlock=True),
        ),
        seed_program=SEED,
        evaluator="def evaluate(candidate, context):\n    raise SystemExit\n",
    )


def infeasible() -> Problem:
    """A problem whose constraint no candidate satisfies, with a hostile program."""
    problem = antenna()
    strict = problem.objectives[-1].model_copy(update={"limit": -0.5})
    changes = {"slug": "infeasible", "objectives": (*problem.objectives[:-1], strict)}
    return problem.model_copy(update=changes | {"seed_program": f"# {HOSTILE}\n{SEED}"})


def single() -> Problem:
    """A problem with one objective."""
    return Problem(
        slug="one-number",
        title="One number",
        kind=ProblemKind.EVALUATOR,
        objectives=(Objective(name="score", range=(0.0, 10.0)),),
        targets=(Target(name="high", rule="score >= 9.5", unlock=True),),
        seed_program=SEED,
        evaluator="def evaluate(candidate, context):\n    raise SystemExit\n",
    )


def cases(count: int = 120) -> Problem:
    """A problem with one objective per test case."""
    return Problem(
        slug="many-cases",
        title="A hundred and twenty test cases",
        kind=ProblemKind.EVALUATOR,
        objectives=tuple(Objective(name=f"case_{i}", range=(0.0, 1.0)) for i in range(count)),
        targets=(Target(name="most", rule="case_20 >= 1", unlock=True),),
        seed_program=SEED,
        evaluator="def evaluate(candidate, context):\n    raise SystemExit\n",
    )


def doomed() -> Problem:
    """A problem on which every candidate fails, with hostile texts."""
    return Problem(
        slug="doomed",
        title=HOSTILE,
        description=HOSTILE * 3 + "w" * 10_000,
        source=HOSTILE,
        kind=ProblemKind.EVALUATOR,
        objectives=(Objective(name="x", description=HOSTILE), Objective(name="y")),
        targets=(Target(name="never", rule="x >= 2", unlock=True, description=HOSTILE),),
        seed_program=f"# {HOSTILE}\nnan = 0.5\n",
        evaluator=f"# {HOSTILE}\ndef evaluate(candidate, context):\n    raise SystemExit\n",
    )


def broken() -> Problem:
    """A problem whose evaluator raises for every candidate."""
    return single().model_copy(update={"slug": "broken", "title": "An evaluator without its package"})


def prose() -> Policy:
    """A scripted policy that writes no programs."""
    texts = [f"I am sorry, I cannot change this program. {HOSTILE}\n" * 12]
    return Policy.model_validate({"slug": "prose", "kind": "scripted", "options": {"completions": texts}})


def mutator(slug: str = "mutator", **changes: object) -> Policy:
    """A program mutator."""
    return Policy.model_validate({"slug": slug, "kind": "program_mutator", **changes})


def adviser() -> Policy:
    """A scripted policy whose completions contain advice with hostile texts."""
    texts = [
        f"```python\na = {n % 7}\nb = 0.{n % 10}\n```\n<advice>Try larger steps in a, {n} at a time. {HOSTILE}</advice>"
        for n in range(60)
    ]
    return Policy.model_validate({"slug": "adviser", "kind": "scripted", "options": {"completions": texts}})


class Landscape:
    """An evaluator that scores programs by the numbers in their text; some fail."""

    tier = "A"

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        """Return one evaluation for each program."""
        return [self._one(problem, program) for program in programs]

    def _one(self, problem: Problem, program: str) -> Evaluation:
        if problem.slug == "broken":
            trace = f'Traceback (most recent call last):\n  File "evaluate.py", line 1, in <module>\n{HOSTILE}\n'
            trace += "ModuleNotFoundError: No module named 'shapely'"
            return self._failed(FailureKind.INVALID_OUTPUT, "evaluator_raised", trace, {})
        numbers = [min(max(float(n), -50.0), 50.0) for n in _NUMBER.findall(program)][:6] + [0.0] * 6
        a, b, c = numbers[:3]
        note = {"stderr": f"{HOSTILE}\nread {len(numbers) - 6} numbers\n"}
        if problem.slug == "doomed":
            note["stderr"] += "w" * 10_000
        if problem.slug == "doomed":
            return self._failed(FailureKind.INVALID_OUTPUT, "not_finite", f"reward 'x' is NaN {HOSTILE}", note)
        if len(program) % 11 == 0:
            return self._failed(FailureKind.TIMEOUT, "wall_clock", "took over 2 s", note)
        if abs(a) > 30:
            return self._failed(FailureKind.CRASHED, "exit_1", "Traceback (most recent call last):\n  ValueError", note)
        if len(problem.objectives) == 1:
            rewards: tuple[float, ...] = (10.0 - abs(a - 2.5) - abs(b - 0.5),)
        elif problem.slug == "many-cases":
            skill = 10.0 * abs(math.sin(a)) + 5.0 * abs(math.cos(b))
            rewards = tuple(float(skill * (1 + (i * 7) % 13) > i * 1.1) for i in range(len(problem.objectives)))
        else:
            gain = 12.0 * math.exp(-((a - 1.7) ** 2) / 3.0)
            rewards = (
                gain,
                2.0 + 0.6 * gain * abs(math.sin(3.0 * b)),
                math.exp(-((b - 0.4) ** 2)) * (1.0 - gain / 15.0),
                1.0 + gain + 8.0 * abs(c),
                max(0.0, -c),
            )
        return Evaluation(
            rewards=rewards, tier=self.tier, wall_s=0.02, cpu_s=0.01, memory_bytes=30 << 20, artifacts=note
        )

    def _failed(self, kind: FailureKind, reason: str, detail: str, note: dict[str, str]) -> Evaluation:
        return Evaluation(failure=Failure(kind, reason, detail), tier=self.tier, wall_s=0.1, cpu_s=0.1, artifacts=note)


def start(stores: Stores, problem: Problem, policy: Policy, evaluations: int = 200, **spec: object) -> UUID:
    """Start a run; add problem and policy if they are missing."""
    given = {
        "strategy": "islands_map_elites",
        "budget": Budget(evaluations=evaluations),
        "lanes": 2,
        "batch": 8,
        **spec,
    }
    run_id, _ = start_run(
        stores.runs,
        stores.signals,
        prepare_run(
            stores.runs,
            problem=stores.catalog.add_problem(problem)[0],
            policies=RunPolicies(stores.catalog.add_policy(policy)[0]),
            spec=RunSpec.model_validate(given),
        ),
    )
    return run_id


def work(stores: Stores, run_id: UUID, units: int | None = None) -> int:
    """Execute work units of a run in this process, all by default; return their number."""
    executor = WorkExecutor(stores.work, stores.signals, Landscape(), build_client)
    done = 0
    while units is None or done < units:
        waiting = next((unit for unit in stores.runs.work_in_flight() if unit.run_id == run_id), None)
        if waiting is None or not executor.execute(waiting.work_id):
            break
        done += 1
    return done


def tournament(
    stores: Stores, slug: str = "head-to-head", *, problems: int = 6, seeds: int = 2, play: bool = True
) -> str:
    """Declare a tournament of three entrants on variants of one problem, and run it to its end."""
    stores.catalog.add_policy(mutator("left"))
    stores.catalog.add_policy(mutator("right", description="the same, searched otherwise"))
    entrants = [
        {"name": "sampling", "policy": "left", "strategy": "best_of_n", "batch": 8},
        {"name": "islands", "policy": "right", "strategy": "islands_map_elites", "batch": 8},
        {"name": "revision", "policy": "right", "strategy": "sequential_revision", "batch": 8},
    ]
    return _compared(stores, slug, "Searching against sampling", entrants, problems, seeds, play=play)


def methods(stores: Stores, slug: str = "methods", *, training_seeds: int, problems: int) -> str:
    """Declare a tournament of two training methods on variants of one problem, and run it to its end."""
    entrants = [
        {"name": f"{method}-{seed}", "policy": f"{method}-{seed}", "batch": 8, "method": method, "training_seed": seed}
        for method in ("grpo", "vpo")
        for seed in range(training_seeds)
    ]
    for entrant in entrants:
        stores.catalog.add_policy(mutator(str(entrant["policy"]), training_method=str(entrant["method"])))
    return _compared(stores, slug, "GRPO against VPO", entrants, problems, 1, play=True)


def _compared(
    stores: Stores, slug: str, title: str, entrants: list[dict[str, Any]], problems: int, seeds: int, *, play: bool
) -> str:
    names = []
    for i in range(problems):
        easy = single().model_copy(update={"slug": f"variant-{i}", "title": f"Variant {i}"})
        rule = Target(name="high", rule=f"score >= {8.0 + 0.35 * i:.2f}", unlock=True)
        stores.catalog.add_problem(easy.model_copy(update={"targets": (rule,)}))
        names.append(f"variant-{i}")
    declared = Tournament.model_validate(
        {
            "slug": slug,
            "title": title,
            "problems": names,
            "entrants": entrants,
            "baseline": entrants[0]["name"],
            "seeds": list(range(seeds)),
            "budget": {"evaluations": 12},
        }
    )
    made, _ = stores.tournaments.create(pin_tournament(declared, stores.catalog), request_digest=declared.digest)
    while play and stores.tournaments.get(made).state is DeclarationState.RUNNING:
        play_on(stores, slug)
    return stores.tournaments.get(made).slug


def play_on(stores: Stores, slug: str) -> None:
    """Start the next runs of a tournament and execute their work."""
    TournamentController().run(stores)
    for run in stores.tournaments.active_runs(stores.tournaments.get(slug).id):
        work(stores, run.run_id)


def campaign(stores: Stores, slug: str = "sweep", *, passes: int = 4) -> str:
    """Declare a campaign on problems of different difficulty, and run some passes of it."""
    for i in range(5):
        rules = (
            Target(name="begun", rule="score >= 5"),
            Target(name="high", rule=f"score >= {8.0 + 0.45 * i:.2f}", unlock=True),
        )
        stores.catalog.add_problem(single().model_copy(update={"slug": f"swept-{i}", "targets": rules}))
    stores.catalog.add_policy(mutator("sweeper"))
    declared = Campaign.model_validate(
        {
            "slug": slug,
            "title": "Five problems, one budget",
            "problems": [f"swept-{i}" for i in range(5)],
            "policy": "sweeper",
            "evaluations": 160,
            "batch": 8,
            "slice": 8,
            "parallel": 2,
        }
    )
    made, _ = stores.campaigns.create(pin_campaign(declared, stores.catalog), request_digest=declared.digest)
    for _ in range(passes):
        sweep(stores, slug)
    return stores.campaigns.get(made).slug


def sweep(stores: Stores, slug: str) -> None:
    """Grant the next slices of a campaign and execute their work."""
    CampaignController().run(stores)
    for problem in stores.campaigns.get(slug).problems:
        if problem.run_id is not None:
            work(stores, problem.run_id)
