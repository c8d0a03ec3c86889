"""Programs as policies: scripted commands that answer, edit files, and misbehave."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from speciate.domain.budget import Budget
from speciate.domain.candidate import Individual
from speciate.domain.charge import Charge
from speciate.domain.errors import ForbiddenError, InvalidInputError, PolicyUnavailableError
from speciate.domain.files import files_of, text_of
from speciate.domain.policy import EditFormat, Policy, PolicyRole, Price
from speciate.domain.problem import Problem
from speciate.domain.rollout import REFUSED, Prompt
from speciate.domain.run import RunState
from speciate.policies import build_client
from speciate.policies.command import CommandPolicy
from speciate.policies.inline import agent_policy
from speciate.policies.kind import ClientContext
from speciate.ports.interruption import interruptible
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.ports.work import RunContext
from speciate.prompts.parse import parse_completion
from speciate.prompts.state import words_of
from speciate.prompts.text import prompt_tokens
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem, toy_spec

SEED = "def solve(x):\n    return x\n"
PROMPT = Prompt("You improve programs.", "Improve `solve`. $(touch /tmp/speciate-injected) `id` ; é")


def client(script: str, *, context: ClientContext | None = None, price: Price | None = None, **options: Any) -> Any:
    command = shlex.join([sys.executable, "-c", script])
    timeout_s = options.pop("timeout_s", 20.0)
    policy = Policy(
        slug="agent", kind="command", options={"command": command, **options}, timeout_s=timeout_s, price=price
    )
    return CommandPolicy(policy) if context is None else CommandPolicy(policy, context)


def request(program: str = SEED, n: int = 1, problem: Problem | None = None, **more: Any) -> SampleRequest:
    parents = (Individual(1, program, (1.0,)),) if program else ()
    return SampleRequest(PROMPT, PolicyRole.MUTATE, n, 7, parents, problem=problem, **more)


def answered(script: str, asked: SampleRequest | None = None, **options: Any) -> SampleResult:
    (result,) = client(script, **options).sample([asked or request()])
    return result


def program_of(result: SampleResult, problem: Problem, parent: str = SEED, **policy: Any) -> str:
    (completion,) = result.completions
    reader = Policy(slug="agent", kind="command", **policy)
    (answer,) = parse_completion(
        completion.text, problem=problem, policy=reader, parent=parent, finish_reason=completion.finish_reason
    )
    assert answer.failure is None, answer.failure
    return answer.program


def test_a_printed_answer_is_read_and_the_prompt_arrives_as_it_is() -> None:
    script = "import sys; print(sys.stdin.read())"
    result = answered(script)
    assert PROMPT.text() in result.completions[0].text
    assert not Path("/tmp/speciate-injected").exists()
    assert (result.estimated_tokens, result.cost) == (result.tokens, None)
    program = "def solve(x):\n    return 2 * x\n"
    assert program_of(answered(f"print('Sure:\\n```python\\n' + {program!r} + '```')"), toy_problem()) == program


def test_a_printed_diff_is_applied() -> None:
    diff = "<<<<<<< SEARCH\n    return x\n=======\n    return 3 * x\n>>>>>>> REPLACE\n"
    result = answered(f"print({diff!r})")
    program = program_of(result, toy_problem(), edit_format=EditFormat.DIFF)
    assert program == SEED.replace("return x", "return 3 * x")


def test_a_changed_file_is_the_answer_whatever_is_printed() -> None:
    script = """
from pathlib import Path
path = Path("candidate.py")
path.write_text(path.read_text().replace("return x", "return '```'"))
Path("notes.txt").write_text("no part of the program")
print("Done. ```python\\nwrong\\n```\\n\\nI checked it.")
"""
    problem = toy_problem()
    result = answered(script, request(problem=problem))
    assert program_of(result, problem) == SEED.replace("return x", "return '```'")
    assert words_of(result.completions[0].text) == "Done. python wrong"  # the idea, which later prompts tell


def test_a_whole_folder_is_edited() -> None:
    problem = toy_problem().model_copy(update={"many_files": True})
    program = text_of({"candidate.py": "from shapes.circle import area\n", "shapes/circle.py": "area = 1\n"})
    script = """
from pathlib import Path
Path("shapes/circle.py").write_text("area = 2\\n")
Path("shapes/square.py").write_text("area = 4\\n")
Path("shapes/__pycache__").mkdir()
Path("shapes/__pycache__/circle.py").write_text("cached")
Path(".agent").mkdir()
Path(".agent/log.py").write_text("log")
Path("secret.py").symlink_to("/etc/passwd")
Path("run.sh").write_text("echo")
Path("candidate.py").unlink()
"""
    changed = program_of(answered(script, request(program, problem=problem)), problem, program)
    assert files_of(changed) == {
        "candidate.py": "from shapes.circle import area\n",
        "shapes/circle.py": "area = 2\n",
        "shapes/square.py": "area = 4\n",
    }


def test_a_program_from_scratch_starts_in_an_empty_folder() -> None:
    result = answered("import os; print(os.listdir('.'))", request(""))
    assert result.completions[0].text == "[]\n"


@pytest.mark.parametrize(
    ("script", "options", "says"),
    [
        ("import time; time.sleep(60)", {"timeout_s": 0.5}, "it ran for more than 0.5 s"),
        ("import os; os.abort()", {}, "signal 6"),
        ("import sys; sys.exit('my trouble')", {}, "exit status 1: my trouble"),
        ("", {}, "it printed nothing"),
        ("while True: print('x' * 4096)", {"max_output_bytes": 1 << 16}, "wrote more than 65536 bytes"),
        (
            "import sys\nwhile True: print('x' * 4096, file=sys.stderr)",
            {"max_output_bytes": 1 << 16},
            "wrote more than 65536 bytes",
        ),
        (
            "open('big', 'wb').write(bytes(1 << 20)); print('x')",
            {"max_folder_bytes": 1 << 16},
            "wrote files of more than 65536 bytes",
        ),
    ],
)
def test_a_process_without_an_answer_is_a_refused_one_that_says_why(
    script: str, options: dict[str, Any], says: str
) -> None:
    started = time.monotonic()
    (completion,) = answered(script, **options).completions
    assert completion.finish_reason == REFUSED
    assert says in completion.text.partition("\n")[0]
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    "script",
    [
        "os.remove('candidate.py'); os.symlink('candidate.py', 'candidate.py')",
        "for _ in range(25): os.mkdir('d' * 200); os.chdir('d' * 200)",
        "for _ in range(1500): os.mkdir('d'); os.chdir('d')",
    ],
    ids=["link", "path", "depth"],
)
def test_what_an_agent_leaves_behind_costs_only_its_answer(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    problem = toy_problem().model_copy(update={"many_files": True})
    asked = request(text_of({"candidate.py": SEED}), problem=problem)
    result = answered(f"import os\n{script}\nprint({json.dumps(CLAUDE)!r})", asked)
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)
    assert result.cost == 0.25
    assert ("wrote files" in result.completions[0].text) == ("200" in script)


def test_a_killed_program_costs_what_was_reserved(tmp_path: Path) -> None:
    price = Price(input=1, output=10)
    agent = client("import time; time.sleep(60)", timeout_s=0.5, price=price)
    (result,) = agent.sample([request()])
    assert result.tokens == result.estimated_tokens == agent.token_ceiling(request())
    assert result.charge(price).cost > 0
    first = f"import os, time; os.mkdir({str(tmp_path / 'first')!r}); print({json.dumps(CLAUDE)!r})"
    script = f"try:\n    {first}\nexcept FileExistsError:\n    time.sleep(60)"
    assert answered(script, request(n=2), timeout_s=2.0, price=price).cost > 0.25  # type: ignore[operator]


def test_cached_credentials_are_no_request_to_log_in() -> None:
    result = answered("import sys; sys.exit('Loaded cached credentials. Reached max turns')")
    assert result.completions[0].finish_reason == REFUSED


def test_an_edit_before_the_time_limit_counts() -> None:
    script = "import time; open('candidate.py', 'w').write('def solve(x):\\n    return 5\\n'); time.sleep(60)"
    assert program_of(answered(script, timeout_s=2.0), toy_problem()) == "def solve(x):\n    return 5\n"


@pytest.mark.parametrize("own_session", [False, True])
def test_a_child_that_outlives_its_parent_is_ended(own_session: bool, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    script = f"""
import subprocess, sys, time, os
subprocess.Popen([sys.executable, "-c", {child!r}], start_new_session={own_session})
while not (os.path.exists({str(note)!r}) and open({str(note)!r}).read()):
    time.sleep(0.01)
print("answer = 1")
"""
    assert answered(script).completions[0].text == "answer = 1\n"
    deadline = time.monotonic() + 5
    while Path(f"/proc/{note.read_text()}/cmdline").is_file() and time.monotonic() < deadline:
        if not Path(f"/proc/{note.read_text()}/cmdline").read_bytes():
            return  # a zombie
        time.sleep(0.05)
    assert not Path(f"/proc/{note.read_text()}").exists()


CLAUDE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "answer",
    "total_cost_usd": 0.25,
    "usage": {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 7},
}
CODEX = [
    {"type": "thread.started", "thread_id": "t"},
    {"type": "error", "message": "Reconnecting... 1/5"},
    {"type": "item.completed", "item": {"id": "0", "type": "reasoning", "text": "hidden"}},
    {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "answer"}},
    {"type": "turn.completed", "usage": {"input_tokens": 115, "cached_input_tokens": 100, "output_tokens": 7}},
]
GEMINI = {
    "response": "answer",
    "stats": {
        "models": {
            "pro": {"tokens": {"prompt": 100, "candidates": 3, "thoughts": 2, "total": 105}},
            "flash": {"tokens": {"prompt": 15, "candidates": 2, "thoughts": 0}},
        }
    },
}

OPENCODE = [
    {"type": "text", "part": {"text": "answer"}},
    {
        "type": "step_finish",
        "part": {
            "cost": 0.25,
            "tokens": {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 100, "write": 5}},
        },
    },
]


@pytest.mark.parametrize("failed", [{"subtype": "error_max_turns"}, {"subtype": "success", "is_error": True}])
@pytest.mark.parametrize("result", [{}, {"result": "Bad request"}])
def test_what_stopped_claude_is_said_and_zeros_are_no_estimate(failed: dict[str, Any], result: dict[str, Any]) -> None:
    printed = {"type": "result", "usage": {"input_tokens": 0, "output_tokens": 0}, **failed, **result}
    answer = answered(f"print({json.dumps(printed)!r})")
    assert answer.completions[0].text.startswith(result.get("result", failed["subtype"]))
    assert (answer.tokens, answer.estimated_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("printed", "cost"),
    [
        (json.dumps(CLAUDE), 0.25),
        (json.dumps([{"type": "assistant", "message": {"usage": {"input_tokens": 9}}}, CLAUDE]), 0.25),
        ("\n".join(map(json.dumps, CODEX)), None),
        ("a warning\n" + "\n".join(map(json.dumps, CODEX)) + '\n{"type": "item.comp', None),
        (json.dumps(GEMINI, indent=2), None),
        ("Loaded cached credentials.\n" + json.dumps(GEMINI, indent=2), None),
        ("[dotenv] injecting env\n" + json.dumps(GEMINI, indent=2), None),
        ("\n".join(map(json.dumps, OPENCODE)), 0.25),
    ],
    ids=["claude", "claude-verbose", "codex", "codex-partial", "gemini", "gemini-noted", "bracketed", "opencode"],
)
def test_usage_and_cost_are_read_from_json(printed: str, cost: float | None) -> None:
    result = answered(f"print({printed!r})")
    assert [completion.text for completion in result.completions] == ["answer"]
    assert (result.prompt_tokens, result.completions[0].tokens, result.estimated_tokens) == (115, 7, 0)
    assert result.cost == cost


@pytest.mark.parametrize(
    "printed",
    ['{"type": "result", "result": "ans', '{"code": "def solve(x):\\n    return 1\\n"}', "[1, 2", "\x1b[1m{\x1b[0m"],
)
def test_other_json_is_the_answer_itself(printed: str) -> None:
    result = answered(f"print({printed!r}, end='')")
    assert result.completions[0].text == printed.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert result.estimated_tokens == result.tokens


@pytest.mark.parametrize(
    ("printed", "status", "says", "remedy"),
    [
        ("You've hit your session limit · resets 3pm (Asia/Tokyo)", 1, "session limit", "Wait until"),
        ("You've hit your session limit · resets 3pm (Asia/Tokyo)", 0, "session limit", "Wait until"),
        ("ERROR: stream error: 429 Too Many Requests", 1, "429", "Wait until"),
        ("Invalid API key · Please run /login", 1, "/login", "Log in with"),
        (json.dumps({**CLAUDE, "is_error": True, "result": "API Error: 529 overloaded"}), 0, "529", "Wait until"),
        (json.dumps({"type": "turn.failed", "error": {"message": "exceeded your quota"}}), 1, "quota", "Wait until"),
    ],
)
def test_a_limit_is_a_pause_and_no_failed_answer(printed: str, status: int, says: str, remedy: str) -> None:
    agent = client(f"import sys; print({printed!r}); sys.exit({status})")
    with pytest.raises(PolicyUnavailableError, match=says) as caught:
        agent.sample([request()])
    assert (caught.value.remedy or "").startswith(remedy)
    assert caught.value.spent.cost == (0.25 if "529" in printed else 0.0)


@pytest.mark.parametrize(
    "printed", ["<answer>Sort by quota.</answer>", json.dumps({**CLAUDE, "result": "Route billing to accounts."})]
)
def test_a_short_answer_is_no_notice_of_a_limit(printed: str) -> None:
    (completion,) = answered(f"print({printed!r})").completions
    assert (completion.finish_reason == REFUSED, printed.count(completion.text.strip())) == (False, 1)


def test_the_answers_before_a_limit_are_charged(tmp_path: Path) -> None:
    script = f"""
import os, sys, time
if os.path.exists({str(tmp_path / "first")!r}):
    time.sleep(0.5)
    sys.exit("rate limit")
open({str(tmp_path / "first")!r}, "w")
print({json.dumps(CLAUDE)!r})
"""
    with pytest.raises(PolicyUnavailableError) as caught:
        client(script, concurrency=1).sample([request(n=3)])
    assert caught.value.spent.cost == 0.25
    assert caught.value.spent.tokens >= 122


def test_calls_that_fail_together_are_all_charged(tmp_path: Path) -> None:
    limited = {**CLAUDE, "is_error": True, "result": "usage limit reached", "total_cost_usd": 0.5}
    script = f"""
import os, time
print({json.dumps(limited)!r}, flush=True)
open({str(tmp_path)!r} + f"/{{os.getpid()}}", "w")
while len(os.listdir({str(tmp_path)!r})) < 4:  # none ends before all have printed
    time.sleep(0.01)
"""
    with pytest.raises(PolicyUnavailableError, match="limit reached") as caught:
        client(script, concurrency=4).sample([request(n=4)])
    assert caught.value.spent == Charge(4 * 122, 2.0)


def test_tokens_beyond_the_ceiling_are_reserved_or_left_out() -> None:
    printed = json.dumps({**CLAUDE, "usage": {"input_tokens": 500_000, "output_tokens": 7}})
    reserved: list[int] = []
    agent = client(f"print({printed!r})")
    (result,) = agent.sample([request(reserve=lambda tokens: reserved.append(tokens) or True)])
    assert result.tokens == 500_007
    assert reserved == [500_007 - agent.token_ceiling(request())]
    (result,) = agent.sample([request(reserve=lambda _: False)])
    assert result.tokens == agent.token_ceiling(request())


def test_only_listed_variables_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPECIATE_SECRET_KEY", "OPENAI_API_KEY", "AGENT_KEY"):
        monkeypatch.setenv(name, "hidden")
    script = "import os, json; print(json.dumps(dict(os.environ)))"
    seen = json.loads(answered(script, context=ClientContext(commands=("*",), variables=("AGENT_KEY",)))
                      .completions[0].text)  # fmt: skip
    assert seen["HOME"] == os.environ["HOME"]
    assert {name for name, value in seen.items() if value == "hidden"} == {"AGENT_KEY"}
    assert not Path(seen["TMPDIR"]).exists()


def test_keys_that_a_program_was_given_are_in_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KEY", "secret-value")
    context = ClientContext(commands=("*",), variables=("AGENT_KEY",))
    says = "import os; key = os.environ['AGENT_KEY'];"
    edited = answered(f"{says} open('candidate.py', 'a').write(f'# {{key}}')", context=context)
    with pytest.raises(PolicyUnavailableError) as caught:
        answered(f"{says} print(f'Invalid API key {{key}}'); exit(1)", context=context)
    for text in (edited.completions[0].text, str(caught.value)):
        assert "[AGENT_KEY]" in text
        assert "secret-value" not in text
    assert "SPECIATE_AGENT_ENVIRONMENT" in str(caught.value.remedy)


def test_a_program_ends_with_a_killed_parent(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    agent = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    script = f"""
import os, sys, threading
from speciate.subprocesses import CommandLimits, run_command
arguments = [sys.executable, "-c", {agent!r}], os.environ, CommandLimits(600, 1000)
threading.Thread(target=run_command, args=arguments).start()
"""
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        while not (note.exists() and note.read_text()):
            assert parent.poll() is None
            time.sleep(0.01)
        program = psutil.Process(int(note.read_text()))
        parent.kill()
    while program.is_running() and program.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


def test_a_command_that_is_not_allowed_or_does_not_exist_says_so() -> None:
    forbidden = client("print(1)", context=ClientContext(commands=("claude -p",)))
    for call in (forbidden.ping, forbidden.identify):
        with pytest.raises(ForbiddenError, match="operator does not allow the command"):
            call()
    with pytest.raises(PolicyUnavailableError, match="operator does not allow"):
        forbidden.sample([request()])
    assert client("print(1)", context=ClientContext(commands=(shlex.join([sys.executable, "-c", "print(1)"]),))).ping()
    absent = CommandPolicy(Policy(slug="a", kind="command", options={"command": "no-such-agent -p"}))
    with pytest.raises(PolicyUnavailableError, match="no program 'no-such-agent'"):
        absent.sample([request()])


def test_no_more_processes_than_allowed_run_at_once(tmp_path: Path) -> None:
    script = f"""
import os, time
mark = os.path.join({str(tmp_path)!r}, str(os.getpid()))
open(mark, "w"); time.sleep(0.3); print(len(os.listdir({str(tmp_path)!r}))); os.remove(mark)
"""
    agent = client(script, concurrency=2)
    results = agent.sample([request(n=3), request(n=2)])
    counts = [int(completion.text) for result in results for completion in result.completions]
    assert [len(result.completions) for result in results] == [3, 2]
    assert max(counts) == 2


def test_an_interrupted_request_ends_its_process() -> None:
    lost = threading.Event()
    threading.Timer(0.5, lost.set).start()
    started = time.monotonic()
    with interruptible(lost), pytest.raises(PolicyUnavailableError, match="interrupted") as caught:
        client("import time; time.sleep(60)").sample([request()])
    assert time.monotonic() - started < 10
    assert caught.value.spent.estimated == prompt_tokens(PROMPT)  # it may have sent the prompt to a model


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("", "the command is empty"),
        ("  ", "the command is empty"),
        ("''", "the command is empty"),
        ("claude 'open", "No closing quotation"),
        ("claude --api-key=hunter2", "seems to be a secret"),
        ("claude --header sk-0123456789abcdefgh", "seems to be a secret"),
    ],
)
def test_a_wrong_command_names_the_mistake_and_no_secret(command: str, says: str) -> None:
    for make in (agent_policy, lambda text: CommandPolicy(Policy(slug="a", kind="command", options={"command": text}))):
        with pytest.raises(InvalidInputError, match=says) as caught:
            make(command)
        assert "hunter2" not in str(caught.value)
        assert "0123456789" not in str(caught.value)


def test_known_agents_report_their_usage_and_paths_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text("print(1)")
    commands = {
        command: agent_policy(command).options["command"]
        for command in (
            "claude -p",
            "claude -p --output-format text",
            "codex exec -m x",
            "codex exec --json",
            "codex exec --skip-git-repo-check",
            "python agent.py",
            "./agent.py",
        )
    }
    assert list(commands.values()) == [
        "claude -p --output-format json",
        "claude -p --output-format text",
        "codex exec -m x --json --skip-git-repo-check",
        "codex exec --json --skip-git-repo-check",
        "codex exec --skip-git-repo-check --json",
        f"python {tmp_path}/agent.py",
        f"{tmp_path}/agent.py",
    ]
    assert agent_policy("codex exec -m o3").slug == "codex-exec-m-o3"
    prices = [agent_policy(f"{agent}").price for agent in ("codex exec -m o3", "codex exec", "claude -p", "cat")]
    assert prices == [Price(input=2, output=8), None, Price(input=5, output=25), None]
    assert agent_policy("codex exec --model=o3").price == Price(input=2, output=8)


def test_a_run_counts_what_an_agent_costs() -> None:
    program = {**CLAUDE, "result": "```python\nx = 0.NUMBER\ny = 5\n```"}
    script = f"import os; print({json.dumps(program)!r}.replace('NUMBER', str(os.getpid())))"
    policy = client(script, price=Price(input=10**6))._policy.model_copy(update={"model": "agent"})
    spec = toy_spec(budget=Budget(dollars=1.0, evaluations=50), lanes=1, batch=1, strategy="vector_evolution")
    context = RunContext(uuid4(), toy_problem(), policy.model_copy(update={"price": Price()}), uuid4(), spec)
    store, signals = MemoryWorkStore(ticking_clock()), LocalQueue()
    store.add(context)
    signals.committed(store.start(context.run_id))
    drain(WorkExecutor(store, signals, ToyEvaluator(), build_client), signals)
    progress = store.runs[context.run_id].progress
    assert (progress.state, progress.reason) == (RunState.COMPLETED, "the budget of dollars is spent")
    assert (progress.cost, progress.rollouts, progress.tokens) == (1.0, 4, 4 * 122)
