"""Command line and Python client against the whole service that ``speciate up`` starts."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from speciate.cli.app import app
from speciate.cli.errors import ExitCode
from speciate.cli.local_service import LocalService
from speciate.client import AsyncClient, Client
from speciate.domain.errors import ConflictError, NotFoundError, UnavailableError
from speciate.domain.run import RunState
from speciate.policies.bundled import bundled_policies
from speciate.problems.loader import load_problem
from speciate.settings import Settings
from tests.unit.compat.directories import OPENEVOLVE, made

pytestmark = pytest.mark.servers

BUDGET = 60


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@dataclass
class CommandResult:
    code: int
    out: str
    err: str


Cli = Callable[..., CommandResult]


@pytest.fixture
def cli(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("SPECIATE_URL", url)
    monkeypatch.chdir(tmp_path)  # a watch writes the best program there

    def run(*args: object) -> CommandResult:
        with pytest.raises(SystemExit) as ended:
            app([str(arg) for arg in args], prog_name="speciate")
        captured = capfd.readouterr()
        return CommandResult(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def ready(cli: Cli) -> Cli:
    """Return the command line of a service with a problem and a policy."""
    assert cli("problems", "add", "sorting-network-8", "circle-packing-26").code == ExitCode.OK
    return cli


def test_a_replay_looks_a_name_up_in_the_given_data_directory(
    ready: Cli, stack: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("-b", 4, "--lanes", 1, "--name", "to replay", "--watch", "--no-out")
    run = ready("run", "sorting-network-8", "-p", "mutator", *options)
    assert run.code in {ExitCode.OK, ExitCode.NOT_UNLOCKED}
    monkeypatch.delenv("SPECIATE_URL")
    monkeypatch.setenv("SPECIATE_DATA_DIR", str(tmp_path / "other"))
    outcome = ready("runs", "replay", "to replay", "--data-dir", stack.settings.data_dir)
    assert (outcome.code, outcome.out.partition(":")[0]) == (ExitCode.OK, "Identical"), outcome.err


def test_run_from_start_to_export(ready: Cli, url: str, tmp_path: Path) -> None:
    watched = ready(
        "run",
        "sorting-network-8",
        "-p",
        "mutator",
        "-s",
        "islands_map_elites",
        "--budget",
        BUDGET,
        "--seed",
        1,
        "--watch",
    )
    assert "\ncompleted" in watched.out, watched.err
    run_id = json.loads(ready("runs", "list", "--json", "-n", 1).out)["id"]

    # The seed program sorts, so there is a feasible candidate from the first evaluation.
    directory = Path("best", f"sorting-network-8-{run_id[-8:]}")
    assert f"written to  {directory}/candidate.py" in watched.out.splitlines(), watched.err
    facts = json.loads((directory / "best.json").read_text())
    assert (facts["run"], facts["seed"], facts["rewards"]["unsorted"]) == (run_id, 1, 0.0)
    assert ready("best", run_id[-8:]).out == (directory / "candidate.py").read_text()
    front = ready("best", run_id, "--front").out
    assert front == ready("candidates", "top", run_id).out
    assert front.splitlines()[1].split()[0] == str(facts["candidate"])

    # Most candidates do not sort; the page, the API and both commands show the same front in the same order.
    numbers = [json.loads(line)["number"] for line in ready("candidates", "top", run_id, "--json").out.splitlines()]
    programs = [json.loads(line)["candidate"] for line in ready("best", run_id, "--front", "--json").out.splitlines()]
    table = httpx.get(f"{url}/runs/{run_id}/figures/population.csv").text.splitlines()
    assert table[0].startswith("candidate on the front,")
    assert numbers == programs == [int(line.split(",")[0]) for line in table[1:]]

    shown = json.loads(ready("runs", "show", run_id, "--json").out)
    assert (shown["state"], shown["spent"]["evaluations"]) == ("completed", BUDGET)
    assert watched.code == (ExitCode.OK if shown["unlocked"] else ExitCode.NOT_UNLOCKED)
    assert f"{BUDGET} of {BUDGET}" in ready("runs", "show", run_id).out

    events = [json.loads(line) for line in ready("runs", "watch", run_id, "--json").out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, shown["last_event"] + 1))

    assert ready("runs", "export", run_id, "--out", tmp_path / "run.jsonl").code == ExitCode.OK
    exported = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [candidate["number"] for candidate in exported] == list(range(1, BUDGET + 1))

    listed = ready("candidates", "list", run_id, "--json", "-n", 1000).out.splitlines()
    assert len(listed) == BUDGET
    child = next(candidate for candidate in exported if candidate["parents"] and candidate["status"] == "evaluated")
    name = f"{run_id}/{child['number']}"
    assert ready("candidates", "show", child["id"]).code == ExitCode.OK
    assert ready("candidates", "diff", name).out.startswith(("---", "No difference."))
    assert json.loads(ready("candidates", "lineage", name, "--json").out.splitlines()[-1])["number"] == 1
    top = ready("candidates", "top", run_id)
    assert top.code == ExitCode.OK, top.err
    assert top.out.splitlines()[0].split()[:3] == ["number", "comparators", "↓"]
    assert ready("unlocks", "--run", run_id, "--every-target", "--json").code == ExitCode.OK


def test_other_commands(ready: Cli) -> None:
    assert "islands_map_elites" in ready("strategies").out
    assert "responds" in ready("policies", "ping", "mutator").out
    assert ready("problems", "show", "sorting-network-8").code == ExitCode.OK
    assert json.loads(ready("problems", "list", "sorting-network-8", "--json").out)["version"] == 1
    assert ready("sets", "create", "both", "sorting-network-8", "circle-packing-26@1").code == ExitCode.OK
    assert ready("sets", "create", "both", "sorting-network-8").code == ExitCode.CONFLICT
    assert "circle-packing-26@1" in ready("sets", "show", "both").out
    found = {check["name"]: check["status"] for check in json.loads(ready("doctor", "--json").out)["checks"]}
    assert {found[name] for name in ("api", "queue generate", "policy mutator", "sandbox")} == {"good"}


def test_adding_an_unchanged_problem_notes_the_newest_version(cli: Cli, tmp_path: Path) -> None:
    assert cli("problems", "init", tmp_path / "mine").code == ExitCode.OK
    assert cli("problems", "add", tmp_path / "mine").err == ""
    again = cli("problems", "add", tmp_path / "mine", "--json")
    assert json.loads(again.out)["version"] == 1
    assert again.err == "mine@1 is unchanged.\n"

    toml = tmp_path / "mine" / "problem.toml"
    first = toml.read_text()
    toml.write_text(first.replace("Spread ten points", "Spread some points"))
    assert cli("problems", "add", tmp_path / "mine").err == ""
    toml.write_text(first)
    back = cli("problems", "add", tmp_path / "mine")
    assert back.out.startswith("mine@1  ")
    assert "mine means the newest version, mine@2" in back.err


def test_a_problem_whose_seed_program_fails_is_refused_as_check_refuses_it(cli: Cli, tmp_path: Path) -> None:
    cli("problems", "init", tmp_path / "broken")
    script = tmp_path / "broken" / "evaluate.py"
    script.write_text(f"import no_such_package\n{script.read_text()}")
    checked = cli("problems", "check", tmp_path / "broken")
    added = cli("problems", "add", tmp_path / "broken")
    assert (checked.code, added.code) == (ExitCode.FAILED, ExitCode.INVALID)
    reason = checked.out.split("\n", 1)[1]
    assert "the evaluator fails on the seed program" in reason
    assert "No module named 'no_such_package'" in reason
    assert 'File "evaluate.py", line 1' in reason
    assert added.err.startswith(f"error: {reason}")
    assert cli("problems", "show", "broken").code == ExitCode.NOT_FOUND
    assert cli("problems", "add", tmp_path / "broken", "--no-check").code == ExitCode.OK


STAGED = """
slug = "staged-and-forgeable"
title = "An evaluator from elsewhere, in two stages"
kind = "in_process"
seed = "seed.py"
evaluator = "evaluate.py"
data_files = ["hint.txt"]
objectives = [{ name = "quick" }, { name = "slow", range = [0, 10] }]
targets = [
  { name = "easy", rule = "quick >= 1", unlock = true },
  { name = "hard", rule = "slow >= 0" },
]
stages = [
  { name = "first", objectives = ["quick"], needs = "quick >= 2" },
  { name = "second", objectives = ["slow"] },
]
"""


def test_stages_data_files_and_forgeable_unlocks(ready: Cli, url: str, tmp_path: Path) -> None:
    (tmp_path / "problem.toml").write_text(STAGED)
    (tmp_path / "seed.py").write_text("def value():\n    return float(open('data/hint.txt').read())\n")
    (tmp_path / "hint.txt").write_text("1.0")
    (tmp_path / "evaluate.py").write_text(
        "import runpy\n"
        "def evaluate_first(path):\n    return {'quick': runpy.run_path(path)['value']()}\n"
        "def evaluate_second(path):\n    return {'slow': 1}\n"
    )
    assert ready("problems", "add", tmp_path).code == ExitCode.OK
    assert ready("run", "staged-and-forgeable", "-p", "mutator", "--budget", 4, "--watch").code == ExitCode.OK
    with Client(url) as client:
        run = next(iter(client.runs.list()))
        seed = client.runs.get(str(run.id)).candidate(1)
        assert (seed.rewards, seed.stopped_at) == ({"quick": 1.0, "slow": 0.0}, "second")
        assert seed.targets == ("easy",)
        assert {seed.tier} == {worker.tier for worker in client.workers() if worker.tier} <= {"A", "B"}
    shown = ready("candidates", "show", f"{run.id}/1").out
    assert "second" in shown
    assert "needs quick >= 2" in shown
    (unlock,) = [json.loads(line) for line in ready("unlocks", "--run", run.id, "--json").out.splitlines()]
    assert (unlock["target"], unlock["forgeable"], unlock["state"]) == ("easy", True, "confirmed")
    assert "quick (forgeable)" in ready("unlocks", "--problem", "staged-and-forgeable", "--records").out


def test_converted_openevolve_directory_evolves(ready: Cli, url: str, tmp_path: Path) -> None:
    theirs, ours = made(tmp_path / "a-line", OPENEVOLVE), tmp_path / "ours"
    outcome = ready("problems", "import", f"openevolve:{theirs}", "--minimize", "loss", "--into", ours)
    assert outcome.code == ExitCode.OK, outcome.err
    assert ready("problems", "add", ours).code == ExitCode.OK
    watched = ready("run", "openevolve-a-line", "-p", "mutator", "--budget", 40, "--seed", 1, "--lanes", 1, "--watch")
    assert watched.code == ExitCode.OK, watched.err
    with Client(url) as client:
        run = next(iter(client.runs.list()))
        candidates = list(client.runs.get(str(run.id)).candidates())
    assert len(candidates) == 40
    losses = [candidate.rewards["loss"] for candidate in candidates if candidate.rewards]
    assert losses[-1] == 1.5  # the initial program, listed last
    assert min(losses) < 1.5
    (unlock,) = [json.loads(line) for line in ready("unlocks", "--run", run.id, "--json").out.splitlines()]
    assert (unlock["target"], unlock["forgeable"]) == ("better_than_initial", True)
    assert ready("problems", "save", run.id, tmp_path / "saved").code == ExitCode.OK
    saved, declared = load_problem(tmp_path / "saved"), load_problem(ours)
    assert [o.estimated for o in saved.objectives] == [False] * 3
    assert saved.evaluator_digest != declared.evaluator_digest
    assert saved.data_files == declared.data_files
    assert "is not empty" in ready("problems", "save", run.id, ours).err


def test_service_without_a_sandbox_does_not_start(open_dir: Path) -> None:
    settings = Settings(data_dir=open_dir / "data", port=0, evaluate_slots=1, generate_slots=1)
    settings = settings.model_copy(update={"sandbox": "castle"})  # Settings would reject this value
    with (
        LocalService(settings) as stack,
        pytest.raises(UnavailableError, match=r"exited during startup.*'sandbox'.*'auto', 'A'"),
    ):
        for _ in stack.start():
            pass


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no address of IPv6")
def test_service_reaches_itself_regardless_of_the_public_url(open_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_SERVE_TOKEN", "t0ken")
    elsewhere = "http://127.0.0.1:9"
    settings = Settings(
        data_dir=open_dir / "data", host="::1", port=0, url=elsewhere, evaluate_slots=1, generate_slots=1
    )
    with LocalService(settings) as stack:
        for _ in stack.start():
            pass
        assert stack.settings.base_url == elsewhere
        with Client(stack.url) as client:
            client.policies.add(bundled_policies()[0])
            client.policies.ping(bundled_policies()[0].slug)
        assert all("t0ken" not in stack.log_of(name).read_text() for name in stack.poll())


@pytest.mark.parametrize(
    ("args", "code", "named"),
    [
        (["problems", "show", "nothing"], ExitCode.NOT_FOUND, "nothing"),
        (["runs", "show", "00000000-0000-0000-0000-000000000000"], ExitCode.NOT_FOUND, "no run"),
        (["runs", "show", "x"], ExitCode.NOT_FOUND, "speciate runs list"),
        (["candidates", "show", "x"], ExitCode.NOT_FOUND, "RUN/NUMBER"),
        (["run", "sorting-network-8", "-p", "who", "-b", "5"], ExitCode.NOT_FOUND, "who"),
        (["run", "sorting-network-8", "-p", "mutator", "-b", "5", "-s", "magic"], ExitCode.INVALID, "best_of_n"),
        (
            ["run", "sorting-network-8", "-p", "mutator", "-b", "5", "-o", "min_elites=0"],
            ExitCode.INVALID,
            "min_elites",
        ),
        (["policies", "add", "Bad Name", "--kind", "program_mutator"], ExitCode.INVALID, "NAME: is 'Bad Name'"),
        (["policies", "add", "p", "--kind", "magic"], ExitCode.INVALID, "program_mutator"),
        (["policies", "add", "p", "--kind", "openai_compatible"], ExitCode.INVALID, "base_url"),
        (["runs", "list", "--state", "asleep"], ExitCode.INVALID, "state"),
    ],
)
def test_errors_name_the_cause(ready: Cli, args: list[str], code: ExitCode, named: str) -> None:
    outcome = ready(*args)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("error: ")
    assert named in outcome.err
    assert "Traceback" not in outcome.err


def test_unreachable_policy_pauses_the_run_and_ends_watch(ready: Cli) -> None:
    down = ["--kind", "openai_compatible", "--base-url", "http://127.0.0.1:1/v1", "--model", "m"]
    refused = ready("policies", "add", "down", *down)
    assert (refused.code, "127.0.0.1:1" in refused.err) == (ExitCode.UNREACHABLE, True)
    assert ready("policies", "add", "down", *down, "--unchecked").code == ExitCode.OK
    assert ready("policies", "ping", "down").code == ExitCode.UNREACHABLE
    outcome = ready("run", "sorting-network-8", "-p", "down", "-b", 20, "--watch")
    assert outcome.code == ExitCode.PAUSED
    assert "paused" in outcome.out
    run_id = json.loads(ready("runs", "list", "--json", "-n", 1).out)["id"]
    assert ready("runs", "cancel", run_id, "--reason", "no policy").out == f"{run_id} is cancelled: no policy\n"
    assert ready("runs", "resume", run_id).code == ExitCode.CONFLICT


def test_a_local_process_cannot_choose_its_address(url: str) -> None:
    # With the claimed address it would be refused here, and with a token evade the limit on failed attempts.
    claimed = {"X-Forwarded-For": "203.0.113.9"}
    assert httpx.get(f"{url}/v1/runs", headers=claimed).status_code == 200


def test_the_python_client(ready: Cli, url: str) -> None:
    with Client(url) as client:
        run = client.runs.create("sorting-network-8", "mutator", budget=BUDGET, idempotency_key="once", seed=3)
        again = client.runs.create("sorting-network-8", "mutator", budget=BUDGET, idempotency_key="once", seed=3)
        assert again.id == run.id
        with pytest.raises(ConflictError):
            client.runs.create("sorting-network-8", "mutator", budget=BUDGET, idempotency_key="once", seed=4)
        events = list(run.watch())
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert run.wait().state is RunState.COMPLETED
        assert {candidate.id for candidate in run.front()} <= {cell.elite.id for cell in run.archive()}
        detail = client.rollout(next(run.rollouts()).id)
        assert detail.run_id == run.id
        with pytest.raises(NotFoundError):
            run.candidate(BUDGET + 1)


def test_the_asynchronous_client(ready: Cli, url: str) -> None:
    async def evolve() -> list[int]:
        async with AsyncClient(url) as client:
            runs = [await client.runs.create("sorting-network-8", "mutator", budget=20, seed=s) for s in (1, 2)]
            records = await asyncio.gather(*(run.wait() for run in runs))
            return [record.spent.evaluations for record in records]

    assert asyncio.run(evolve()) == [20, 20]


def test_a_bundled_policy_unlocks_a_problem_of_its_task(cli: Cli) -> None:
    made = cli("problems", "import", "task:maze", "--count", 3, "--into", "mazes")
    assert made.out == "mazes: 3 problems, maze-test-0 to maze-test-2\n"
    assert cli("problems", "import", "task:maze", "--count", 3, "--into", "mazes").out == made.out
    assert cli("problems", "import", "task:maze", "--count", 2, "--into", "mazes").code == ExitCode.CONFLICT
    assert "maze-vpo@1" in cli("policies", "add", "--bundled").out
    assert cli("policies", "ping", "maze-vpo").code == ExitCode.OK

    reached = set()
    for policy in ("maze-vpo", "maze-vector-max-at-k"):
        for number in range(3):
            options = ["--strategy", "best_of_n", "--budget", 60, "--lanes", 1]
            watched = cli("run", f"maze-test-{number}", "-p", policy, *options, "--watch")
            assert "\ncompleted" in watched.out, watched.out + watched.err
        unlocks = cli("unlocks", "--policy", policy, "--every-target", "--json").out.splitlines()
        reached |= {json.loads(line)["target"] for line in unlocks}
    assert reached == {"all_gold", "all_diamonds"}

    one_island = ["-s", "islands_map_elites", "-o", "islands=1", "--budget", 60, "--batch", 12, "--lanes", 1]
    evolved = cli("run", "maze-test-0", "-p", "maze-vpo", "--mutator", "maze-base", *one_island, "--watch")
    assert "\ncompleted" in evolved.out, evolved.out + evolved.err
    run_id = json.loads(cli("runs", "list", "--json", "-n", 1).out)["id"]
    roles = {json.loads(line)["role"] for line in cli("runs", "export", run_id).out.splitlines()}
    assert roles == {"propose", "mutate"}


def test_unsuitable_codec_is_rejected_before_the_run(ready: Cli) -> None:
    refused = ready("run", "sorting-network-8", "-p", "maze-vpo", "--budget", 10)
    assert refused.code == ExitCode.INVALID
    assert "is not a maze" in refused.err
    assert ready("policies", "add", "odd", "--kind", "embedded", "--model", "m", "--codec", "chess",
                 "--prompt-format", "completion").code == ExitCode.INVALID  # fmt: skip


def test_checkpoint_manifest_sets_the_policy_fields(cli: Cli) -> None:
    from speciate.policies.bundled import checkpoints

    added = cli(
        "policies", "add", "mine", "--checkpoint", checkpoints()["maze-vpo"], "--description", "Mine.", "--json"
    )
    policy = json.loads(added.out)["definition"]
    assert (policy["kind"], policy["codec"], policy["answers_per_rollout"]) == ("embedded", "maze", 3)
    assert (policy["training_method"], policy["description"]) == ("vpo", "Mine.")
    assert len(policy["checkpoint_digest"]) == 64
    assert cli("policies", "ping", "mine").code == ExitCode.OK
