"""An evaluation ends when the lease of its work is lost, such as after its run was cancelled."""

import time
from uuid import uuid4

import pytest

from speciate.domain.candidate import FailureKind
from speciate.ports.work import Lease, WorkKind
from speciate.runs.executor import LeaseKeeper

LEASE = Lease(uuid4(), uuid4(), WorkKind.EVALUATE, 0, 0, 1, uuid4(), {}, 0)
HOURS = {"wall_s": 7200, "script_s": 7200}


@pytest.mark.parametrize("kind", ["cases", "evaluator", "in_process"])
def test_an_evaluation_of_hours_ends_with_its_lease(make_problem, sandbox, kind):
    fields = {
        "cases": {"cases": [{"input": [], "expected": 1}], "entry_point": "solve"},
        "evaluator": {"evaluator": "def evaluate(c, x):\n    return {'score': c.call('solve').unwrap()}"},
        "in_process": {"evaluator": "import time\ndef evaluate(path):\n    time.sleep(7200)"},
    }
    problem = make_problem(kind, limits=HOURS, **fields[kind])
    keeper = LeaseKeeper(lambda _: False, interval_s=0.2)
    began = time.monotonic()
    with keeper.keep(LEASE):
        results = sandbox.evaluate(problem, ["import time\ndef solve(): time.sleep(7200)"] * 2, seeds=[0, 1])
    assert [each.failure.kind for each in results] == [FailureKind.TIMEOUT] * 2
    assert time.monotonic() - began < HOURS["wall_s"]
