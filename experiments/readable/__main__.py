"""Sample completions of a small model for the bundled problems and write what the parser reads of them.

``python -m experiments.readable --model DIR --out readable.jsonl``. Declared before the sample was drawn: five
bundled problems, temperatures 0.2, 0.7 and 1.0, top-p 0.95, 384 tokens, seed 31 for ``prefilled`` and 30 for the other
forms. The parent is the seed program, shown without its score. Every completion is one line; forms that are in the file
are not sampled again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.readable.report import report
from speciate.domain.candidate import Individual
from speciate.domain.policy import Policy, PolicyRole, Sampling
from speciate.domain.problem import Problem
from speciate.inference.engine import Engine, GenerationRequest, SamplingParams
from speciate.inference.responses import completion_text
from speciate.inference.tokenizer import TextTokenizer
from speciate.problems.loader import bundled, load_problem
from speciate.prompts.compact import opening_of, stops_of
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion

PROBLEMS: Final = (
    "circle-packing-26",
    "online-bin-packing",
    "planck-radiation",
    "relativistic-energy",
    "sorting-network-8",
)
FORMS: Final[dict[str, dict[str, Any]]] = {
    "compact": {"prompt_style": "compact"},
    "prefilled": {"prompt_style": "prefilled"},
    "standard": {},
    "diff": {"edit_format": "diff"},
    "multi": {"prompt_style": "compact", "answers_per_rollout": 3},
}
"""Fields of the policy by the form of the prompt."""
COUNTS: Final = {"compact": 4, "prefilled": 4, "standard": 1, "diff": 1, "multi": 1}
"""Completions for each problem and temperature."""
TEMPERATURES: Final = (0.2, 0.7, 1.0)
SEEDS: Final = {"compact": 30, "prefilled": 31, "standard": 30, "diff": 30, "multi": 30}
MAX_TOKENS: Final = 384
TOP_P: Final = 0.95
_MEMORY_BYTES: Final = 6 << 30


def main() -> int:
    """Sample the missing forms and print the report."""
    parser = argparse.ArgumentParser(prog="python -m experiments.readable")
    parser.add_argument("--model", type=Path, required=True, help="folder of `speciate models get`")
    parser.add_argument("--out", type=Path, default=Path("readable.jsonl"), help="completions, one per line")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="forms of the prompt")
    given = parser.parse_args()
    done = _lines(given.out)
    engine = Engine.load(given.model, memory_bytes=_MEMORY_BYTES)
    for form in given.forms:
        if all(line["form"] != form for line in done):
            fresh = list(_sample(engine, given.model, form))
            with given.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in fresh)
            done += fresh
    sys.stdout.write(report(done))
    return 0


def policy_of_form(form: str) -> Policy:
    """Return the policy of a form."""
    sampling = Sampling(max_tokens=MAX_TOKENS, top_p=TOP_P)
    return Policy(slug="readable", kind="scripted", prompt_tokens=6000, sampling=sampling, **FORMS[form])


def reasons(text: str, problem: Problem, form: str, finish: str) -> list[str | None]:
    """Return for every answer of a completion why it is refused, or None if it is read."""
    answers = parse_completion(
        text, problem=problem, policy=policy_of_form(form), parent=problem.seed_program, finish_reason=finish
    )
    return [answer.failure.reason if answer.failure else None for answer in answers]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def _sample(engine: Engine, folder: Path, form: str) -> Iterator[dict[str, Any]]:
    config = engine.checkpoint.config
    tokenizer = TextTokenizer(folder, config.vocab_size, config.max_position_embeddings)
    asked = []
    for place, slug in enumerate(PROBLEMS):
        problem = load_problem(bundled()[slug])
        parent = Individual(1, problem.seed_program, None)
        for step, temperature in enumerate(TEMPERATURES):
            seed = SEEDS[form] + len(TEMPERATURES) * place + step
            rng = np.random.default_rng(seed)
            prompt = build_prompt(problem, PolicyRole.MUTATE, [parent], [], policy_of_form(form), rng)
            opening = opening_of(policy_of_form(form), prompt)
            params = SamplingParams(COUNTS[form], MAX_TOKENS, temperature, TOP_P, seed)
            stops = tokenizer.watch(stops_of(opening)) if opening else None
            request = GenerationRequest(tokenizer.chat(prompt.messages(), opening), params, stops)
            engine.check(request)
            engine.add(request)
            asked.append((problem, temperature, request))
    while not all(request.done for _, _, request in asked):
        engine.step()
    for problem, temperature, request in asked:
        for index in range(request.params.n):
            one = request.sampled[index]
            text = completion_text(tokenizer, request, index)
            yield {
                "problem": problem.slug,
                "form": form,
                "temperature": temperature,
                "finish": one.finish_reason,
                "reasons": reasons(text, problem, form, one.finish_reason),
                "text": text,
            }


if __name__ == "__main__":
    raise SystemExit(main())
