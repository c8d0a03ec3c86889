"""Score a program with a problem's evaluator in the peer's process, as the peers' own examples do.

Imported by the peers' Python, which has no Speciate. Every evaluation appends a line to the file of the run.
"""

import contextlib
import importlib.util
import json
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parent))

from scoring import score  # OpenEvolve imports this file from elsewhere

CONFIG = json.loads(os.environ["PEER_RUN"])
"""Values of the run: see ``experiments.door.peers.configuration``."""


class InvalidAnswerError(Exception):
    """The candidate's answer breaks the rules of the problem."""


class Context:
    """Context of an evaluation."""

    files = CONFIG["files"]

    def invalid(self, reason):
        """End the evaluation."""
        raise InvalidAnswerError(reason)

    def note(self, label, text):
        """Keep nothing."""


def load_problem():
    """Return the function ``evaluate`` of the problem."""
    folder = Path(CONFIG["problem"])
    sys.path.insert(0, str(folder.parent))  # of files that bundled problems share
    return runpy.run_path(str(folder / "evaluate.py"))["evaluate"]


EVALUATE = load_problem()


def evaluate_file(path):
    """Return the score of the program in a file, 0 if it fails, with its rewards or the reason."""
    try:
        with _time_limit(CONFIG["timeout_s"]):
            spec = importlib.util.spec_from_file_location(f"candidate_{time.time_ns()}", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)

            def call(name, *arguments, **_):
                try:
                    answer = json.loads(json.dumps(getattr(module, name)(*json.loads(json.dumps(arguments)))))
                except TimeoutError:
                    raise
                except Exception as error:  # noqa: BLE001  # a candidate may raise anything
                    return SimpleNamespace(
                        value=None, failure=SimpleNamespace(reason=repr(error)), unwrap=_raise(error)
                    )
                return SimpleNamespace(value=answer, failure=None, unwrap=lambda: answer)

            rewards = EVALUATE(SimpleNamespace(call=call, source=Path(path).read_text(encoding="utf-8")), Context())
        found = {"score": score(rewards, CONFIG["objectives"]), "rewards": rewards}
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a candidate may raise anything
        found = {"score": 0.0, "error": f"{type(error).__name__}: {error}"[:500]}
    line = json.dumps({"t": time.time(), **found}) + "\n"
    with Path(CONFIG["log"]).open("a", encoding="utf-8") as file:
        file.write(line)
    return found


def _raise(error):
    def unwrap():
        raise error

    return unwrap


@contextlib.contextmanager
def _time_limit(seconds):
    """Raise TimeoutError after some seconds; in a main thread only, where Python delivers signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_):
        raise TimeoutError(f"longer than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main():
    """ShinkaEvolve's form: write ``metrics.json`` and ``correct.json``."""
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    found = evaluate_file(arguments["--program_path"])
    folder = Path(arguments["--results_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    metrics = {"combined_score": found["score"], "public": found.get("rewards", {}), "private": {}}
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    correct = {"correct": "error" not in found, "error": found.get("error")}
    (folder / "correct.json").write_text(json.dumps(correct), encoding="utf-8")


if __name__ == "__main__":
    main()
