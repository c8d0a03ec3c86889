"""Test whether an engine keeps the contract, without a service and without a model."""

import re
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from speciate.domain.errors import BudgetSpentError
from speciate.engines.contain import LEFT_RUNNING
from speciate.engines.installation import Engine
from speciate.engines.launch import run_engine
from speciate.engines.relay import GRACE_S, Relay
from speciate.problems.definition import python_field_errors
from speciate.schema.engines import EngineEvaluation, EngineSession, ModelAnswer

_BUDGET: Final = 8
_KILL_AT: Final = 2
_EVALUATION_S: Final = 0.2
_PROGRAM: Final = "# EVOLVE-BLOCK-START\ndef value():\n    return {}\n# EVOLVE-BLOCK-END\n"
_ANSWER: Final = "<NAME>\nnext\n</NAME>\n<DESCRIPTION>\nNext.\n</DESCRIPTION>\n<CODE>\n```python\n{}```\n</CODE>"
_VALUE: Final = re.compile(r"return (\d+)")


@dataclass
class ToyService:
    """A problem whose score is the number that a program returns, and a model that counts up."""

    programs: list[str] = field(default_factory=list)
    sessions: set[UUID] = field(default_factory=set)
    """Those that sent programs."""
    asked: int = 0
    _results: dict[str, EngineEvaluation] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, _: UUID, messages: Sequence[Mapping[str, str]], *, n: int = 1) -> ModelAnswer:
        with self._lock:
            self.asked += n
            texts = tuple(_ANSWER.format(_PROGRAM.format(self.asked - index)) for index in range(n))
        return ModelAnswer(
            completions=texts, prompt_tokens=sum(len(m["content"]) for m in messages), completion_tokens=9
        )

    def evaluate(self, session: UUID, program: str, *, key: str = "") -> EngineEvaluation:
        time.sleep(_EVALUATION_S)
        with self._lock:
            if key not in self._results:
                if len(self.programs) >= _BUDGET:
                    raise BudgetSpentError("The budget of the check is spent.")
                self.programs.append(program)
                self.sessions.add(session)
                value = _VALUE.search(program)
                score = float(value[1]) / 100 if value else 0.0
                left = _BUDGET - len(self.programs)
                self._results[key] = EngineEvaluation(
                    number=len(self.programs), score=score, rewards={"value": score}, evaluations_left=left
                )
            return self._results[key]


def check(name: str, engine: Engine, limit_s: float) -> list[dict[str, Any]]:
    """Run an engine on a toy problem, kill it, start it again, and return for each rule of the contract
    whether it passed, with a remedy if not.
    """
    service = ToyService()
    with tempfile.TemporaryDirectory(prefix="speciate-check-", ignore_cleanup_errors=True) as folder:
        for kill_at in (_KILL_AT, _BUDGET + 1):
            session = toy_session(name, service)
            with Relay(service, session) as relay:
                ended, tail = run_engine(
                    engine, session, Path(folder), relay, limit_s,
                    lambda: relay.overdue or len(service.programs) >= kill_at,  # noqa: B023  # within the loop
                )  # fmt: skip
    whole = all(not python_field_errors(each, where="program", defines="value") for each in service.programs)
    asked = bool(service.programs)
    output = f"Its output ends with: {tail or 'nothing'}"
    rules = (
        ("It asks the evaluator", asked, f'POST {{"program": "…"}} to SPECIATE_EVALUATOR_URL. {output}'),
        ("It sends whole programs", whole and asked, "Apply a change to its program before you send it."),
        ("It goes on after it was killed", session.id in service.sessions,
         "Started again with the same files, it must evaluate further programs: keep state in `output` only."),
        ("It ends by itself", ended.status is not None,
         f"End within {GRACE_S:g} s of the last evaluation. Here it {ended.exceeded}."),
        ("It ends with exit code 0", ended.status == 0, output),
        ("It leaves no processes", LEFT_RUNNING not in tail, "Wait for all processes that it starts."),
    )  # fmt: skip
    return [{"rule": rule, "passed": passed, "remedy": "" if passed else remedy} for rule, passed, remedy in rules]


def toy_session(name: str, service: ToyService) -> EngineSession:
    return EngineSession(
        id=uuid4(), run_id=UUID(int=1), attempt=1, lease_until=datetime.now(UTC) + timedelta(hours=1), engine=name,
        engine_options={}, seed=1, evaluations=_BUDGET, evaluations_left=_BUDGET - len(service.programs), tokens=None,
        model="toy", problem="toy@1", title="Toy", description="Return the largest number.", language="python",
        seed_program=_PROGRAM.format(0), objectives={"value": {"low": 0.0, "high": 1.0}},
    )  # fmt: skip
