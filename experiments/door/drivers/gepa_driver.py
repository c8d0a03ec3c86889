"""Run GEPA's ``optimize_anything`` on one problem; with ``--survivors`` print how many evaluations its state holds."""

import json
import sys
import tempfile
import urllib.request
from pathlib import Path

from adapter import CONFIG, evaluate_file
from gepa.core.state import GEPAState
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything


def ask(prompt):
    """Return the endpoint's answer: GEPA takes any function as its model."""
    messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    body = {"model": CONFIG["model"], "messages": messages, "temperature": CONFIG["temperature"], "max_tokens": 8192}
    request = urllib.request.Request(  # noqa: S310  # the URL is the command's own
        f"{CONFIG['url']}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
        return json.load(reply)["choices"][0]["message"]["content"]


def evaluate(candidate):
    """Return score and feedback of a program."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(candidate)
        file.flush()
        found = evaluate_file(file.name)
    return found["score"], {key: found[key] for key in ("rewards", "error") if key in found}


if __name__ == "__main__":
    if "--survivors" in sys.argv:
        state = Path(CONFIG["output"], "gepa_state.bin")
        cache = GEPAState.load(CONFIG["output"]).evaluation_cache if state.exists() else None
        print(len(cache._cache) if cache else 0)  # noqa: T201
    else:
        optimize_anything(
            seed_candidate=Path(CONFIG["initial"]).read_text(encoding="utf-8"),
            evaluator=evaluate,
            objective=CONFIG["description"],
            config=GEPAConfig(
                # One evaluation per proposal, in the main thread, where it can be interrupted; parents are cached.
                engine=EngineConfig(
                    max_candidate_proposals=CONFIG["evaluations"] - 1, run_dir=CONFIG["output"], seed=CONFIG["seed"],
                    parallel=False, cache_evaluation=True,
                ),
                reflection=ReflectionConfig(reflection_lm=ask),
            ),
        )  # fmt: skip
