"""The two addresses of an engine, for the drivers; needs nothing but the standard library."""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

RUN = json.loads(Path(os.environ["SPECIATE_ENGINE_RUN"]).read_text(encoding="utf-8"))
"""Values of the run: see ``speciate.engines.launch.run_engine``."""
_OPTIONS = ["concurrency", *(["best"] if RUN["engine"] == "sequential-sampling" else [])]
if unknown := sorted(RUN["engine_options"].keys() - _OPTIONS):
    sys.exit(f"unknown engine option {unknown[0]!r}: expected {' or '.join(_OPTIONS)}")
EVALUATIONS = RUN["evaluations"] or 10**6
_LONGEST_DELAY_S = 64
MODEL, MODEL_URL = os.environ["SPECIATE_MODEL"], os.environ["SPECIATE_MODEL_URL"]


class BudgetSpentError(Exception):
    """The budget of the run is spent: the engine ends."""


def evaluate(program):
    """Return score, rewards, failure and feedback of a program."""
    return _post(os.environ["SPECIATE_EVALUATOR_URL"], {"program": program})


def complete(messages):
    """Return the model's answer."""
    return _post(f"{MODEL_URL}/chat/completions", {"messages": messages})["choices"][0]["message"]["content"]


def _post(url, body, delay_s=1):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request) as reply:  # noqa: S310  # the URL is the runner's
            return json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code == 410:
            raise BudgetSpentError from None
        if error.code not in (429, 503) or delay_s > _LONGEST_DELAY_S:
            raise
    time.sleep(delay_s)  # too many requests, or the model is unavailable
    return _post(url, body, 2 * delay_s)
