"""Run the declared comparison on a service that serves SmolLM2; a repeated command continues it.

``speciate up --model smollm2-135m``, then ``python -m experiments.mutation --out docs/evidence/mutation.jsonl --page
docs/evidence/mutation.md``. Runs are done one after the other. Every finished run is one line of the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from experiments.declared_runs import DeclaredRun, Line, do_runs, write_results
from experiments.mutation.plan import MAX_TOKENS, MODEL, MUTATOR, SERVED, declared_runs
from experiments.mutation.report import improvements, report
from speciate.client import Client
from speciate.client.sync.run import RunHandle
from speciate.domain.policy import Policy, PolicyRole

RESULTS = "## Results"


def main() -> int:
    """Do the missing runs and write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.mutation")
    parser.add_argument("--url", default="http://127.0.0.1:8420", help="service with the model")
    parser.add_argument("--out", type=Path, default=Path("docs/evidence/mutation.jsonl"), help="results, a line a run")
    parser.add_argument("--page", type=Path, default=Path("docs/evidence/mutation.md"), help="page of the results")
    given = parser.parse_args()
    runs = list(declared_runs())

    def write(lines: Sequence[Line]) -> None:
        text = f"{len(lines)} of the {len(runs)} declared runs are done.\n\n{report(lines)}"
        write_results(given.page, RESULTS, text)

    with Client(given.url) as service:
        service.policies.add(short(service.policies.get(SERVED).definition))
        service.policies.add(Policy(slug=MUTATOR, kind="program_mutator", training_method="none"))
        do_runs(service, runs, given.out, measure, write)
    return 0


def short(served: Policy) -> Policy:
    """Return the policy of the model with shorter completions: most of its functions have about 100 tokens."""
    sampling = served.sampling.model_copy(update={"max_tokens": MAX_TOKENS})
    return served.model_copy(update={"slug": MODEL, "sampling": sampling})


def measure(run: RunHandle, declared: DeclaredRun) -> Line:
    """Return the improvements of a completed run with the policies that found them, and its best first objective."""
    found = sorted(run.candidates(), key=lambda each: each.number)
    completions = [rollout.completion_tokens for rollout in run.rollouts()]
    record = run.refresh()
    names: dict[UUID | None, str] = {member.policy_id: member.policy for member in record.ensembles}
    names[record.policy_id] = record.policy
    return {
        "evaluations": record.spent.evaluations,
        "failed": record.failed,
        "reasons": record.reasons,
        "completions": len(completions),
        "completion_tokens": sum(completions),
        "asked": {m.policy: m.asked for m in record.ensembles if m.role is PolicyRole.MUTATE},
        "improvements": [
            [found[place].number, names.get(found[place].policy_id, "seed")]
            for place in improvements(declared.problem, [each.rewards for each in found])
        ],
        "best": None if record.best is None else record.best.rewards[declared.problem.space.names[0]],
    }


if __name__ == "__main__":
    raise SystemExit(main())
