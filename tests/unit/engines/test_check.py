"""The contract test passes engines that keep the contract, and names the rule that others break."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from speciate.engines.check import ToyService, check, toy_session
from speciate.engines.installation import from_command, installed
from speciate.engines.launch import run_engine
from speciate.engines.relay import Relay

HOWTO = Path(__file__).resolve().parents[3] / "docs" / "howto" / "enter-an-engine.md"
(EXAMPLE,) = re.findall(r"```python\n(.*?)^```\n", HOWTO.read_text(), re.DOTALL | re.MULTILINE)


def broken_rules(tmp_path: Path, source: str, limit_s: float = 60.0) -> set[str]:
    script = tmp_path / "my_engine.py"
    script.write_text(source)
    rules = check("mine", from_command(f"{sys.executable} {script}"), limit_s)
    return {rule["rule"] for rule in rules if not rule["passed"]}


def test_the_example_of_the_guide_is_short_and_keeps_the_contract(tmp_path: Path) -> None:
    assert len(EXAMPLE.splitlines()) <= 25
    assert broken_rules(tmp_path, EXAMPLE) == set()


@pytest.mark.parametrize("name", ["independent-sampling", "sequential-sampling"])
def test_the_baselines_keep_the_contract(tmp_path: Path, name: str) -> None:
    engine = installed(name, tmp_path)
    assert engine is not None
    assert [rule["rule"] for rule in check(name, engine, 60.0) if rule["remedy"]] == []


def test_an_engine_that_asks_nothing(tmp_path: Path) -> None:
    assert broken_rules(tmp_path, "") == {
        "It asks the evaluator", "It sends whole programs", "It goes on after it was killed",
    }  # fmt: skip


def test_an_engine_that_sends_changes_instead_of_programs(tmp_path: Path) -> None:
    source = EXAMPLE.replace('{"program": program}', '{"program": "<<<<<<< SEARCH"}')
    assert broken_rules(tmp_path, source) == {"It sends whole programs"}


def test_an_engine_that_fails_at_the_end_of_its_budget(tmp_path: Path) -> None:
    assert broken_rules(tmp_path, EXAMPLE.replace("0 if error.code == 410 else 1", "1")) == {"It ends with exit code 0"}


def test_an_engine_that_does_not_end(tmp_path: Path) -> None:
    source = EXAMPLE.replace("raise SystemExit(0 if error.code == 410 else 1)", "__import__('time').sleep(600)")
    assert broken_rules(tmp_path, source, limit_s=5.0) == {"It ends by itself", "It ends with exit code 0"}


def test_an_engine_that_is_confused_by_its_own_state(tmp_path: Path) -> None:
    source = "import os, json\nfolder = json.load(open(os.environ['SPECIATE_ENGINE_RUN']))['output']\n"
    source += "os.mkdir(f'{folder}/once')\n" + EXAMPLE
    assert "It goes on after it was killed" in broken_rules(tmp_path, source)


def test_an_engine_that_leaves_a_process(tmp_path: Path) -> None:
    source = (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n" + EXAMPLE
    )
    assert broken_rules(tmp_path, source) == {"It leaves no processes"}


def test_a_baseline_goes_on_although_a_kill_has_cut_its_history(tmp_path: Path) -> None:
    engine, service = installed("sequential-sampling", tmp_path), ToyService()
    assert engine is not None
    history = tmp_path / "home" / "output" / "history.jsonl"
    history.parent.mkdir(parents=True)
    history.write_text('{"program": "x = 1", "score": 0.1}\n{"program": "x = 2", "sco')
    for killed_at in (3, 99):
        session = toy_session("sequential-sampling", service)
        with Relay(service, session) as relay:

            def must_end(most: int = killed_at, relay: Relay = relay) -> bool:
                return relay.overdue or len(service.programs) >= most

            ended, output = run_engine(engine, session, tmp_path, relay, 20, must_end)
    assert (ended.status, output) == (0, "")
