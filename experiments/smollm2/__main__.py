"""Train the declared policies and compare them with their base; a repeated command continues where it stopped.

1. ``python -m experiments.smollm2 train --model DIR --out DIR``: adapters of one base by ``speciate train``, one for
   each method and seed.
2. ``python -m experiments.smollm2 sample --model DIR --out DIR``: held-out answers of all training seeds, without a
   service.
3. ``python -m experiments.smollm2 serve --model DIR --out DIR``: prints the command that serves all of them with vLLM.
4. ``python -m experiments.smollm2 compare --endpoint URL --url URL --out DIR``: runs on a service (``speciate up``),
   one line of ``comparison.jsonl`` for each, and the page.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from experiments.declared_runs import DeclaredRun, Line, do_runs, read_lines, write_results
from experiments.smollm2.plan import (
    BASE,
    EVALUATIONS,
    METHODS,
    SEEDS,
    TASK,
    declared_runs,
    folder_name,
    policy_name,
    train_command,
)
from experiments.smollm2.report import report, samples_table
from speciate.client import Client
from speciate.client.sync.run import RunHandle
from speciate.domain.policy import Policy
from speciate.policies.manifest import policy_of, read_manifest

RESULTS: Final = "## Comparison"
SAMPLES: Final = "## All seeds"
_TEMPERATURE: Final = 0.8
_OPTIONS: Final = {"concurrency": EVALUATIONS}
AT_ONCE: Final = 8
"""Runs at the same time: vLLM answers 139 tokens a second for eight, about 60 for one (two cores)."""
_TAIL: Final = 10
"""First and last steps of a training whose means the page shows."""


def main() -> int:
    """Do one step."""
    parser = argparse.ArgumentParser(prog="python -m experiments.smollm2")
    parser.add_argument("step", choices=("train", "sample", "serve", "compare", "report"))
    parser.add_argument("--model", type=Path, help="folder of `speciate models get smollm2-135m`")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/evidence/smollm2"), help="folder of adapters and results"
    )
    parser.add_argument("--page", type=Path, default=Path("docs/evidence/smollm2.md"), help="page of the results")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="policies to train")
    parser.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, default=list(SEEDS), help="seeds to train")
    parser.add_argument("--gpu", action="store_true", help="train and sample on a GPU, for which the recipe is made")
    parser.add_argument("--url", default="http://127.0.0.1:8420", help="service")
    parser.add_argument("--endpoint", default="http://127.0.0.1:8000/v1", help="vLLM with the adapters")
    given = parser.parse_args()
    if given.step == "train":
        train(given.model, given.out, [(m, s) for s in given.seeds for m in given.methods], gpu=given.gpu)
    if given.step == "sample":
        from experiments.smollm2.sample import sample

        for arm, seed in [(BASE, SEEDS[0]), *[(m, s) for s in given.seeds for m in given.methods]]:
            sample(given.model, given.out, arm, seed, gpu=given.gpu)
    if given.step == "serve":
        sys.stdout.write(shlex.join(serve_command(given.model, given.out)) + "\n")
        return 0
    if given.step == "compare":
        compare(given.url, given.endpoint, given.out, given.page)
    write_page(given.page, given.out)
    return 0


def train(model: Path, out: Path, trainings: Sequence[tuple[str, int]], *, gpu: bool) -> None:
    """Train the policies that are not complete; an interrupted training continues from its last checkpoint."""
    out.mkdir(parents=True, exist_ok=True)
    speciate = str(Path(sys.executable).with_name("speciate"))
    for method, seed in trainings:
        started = time.monotonic()
        folder = out / folder_name(method, seed)
        subprocess.run(train_command(speciate, method, seed, model, folder, gpu=gpu), check=True)
        spent = {"method": method, "seed": seed, "wall_s": time.monotonic() - started}
        with (out / "training.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(spent) + "\n")


def serve_command(model: Path, out: Path) -> list[str]:
    """Return the command that serves base and adapters with vLLM on a processor."""
    modules = [f"{policy_name(method)}={(out / folder_name(method)).resolve()}" for method in METHODS]
    flags = ["--dtype", "bfloat16", "--max-model-len", "1024", "--enforce-eager", "--no-enable-chunked-prefill"]
    flags += ["--block-size", "32"]  # prompts of one problem share whole blocks only
    flags += ["--max-num-batched-tokens", "1024", "--max-num-seqs", "256"]  # fewer equal prompts in the first pass
    lora = [
        "--enable-lora",
        "--max-loras",
        str(len(METHODS)),
        "--max-cpu-loras",
        "4",
        "--max-lora-rank",
        "8",
        "--lora-modules",
        *modules,
    ]
    start = [".venv-vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    return [*start, "--served-model-name", policy_name(BASE), "--port", "8000", *flags, *lora]


def compare(url: str, endpoint: str, out: Path, page: Path) -> None:
    """Do the missing runs of the comparison."""
    with Client(url) as service:
        for method in METHODS:
            service.policies.add(policy(out / folder_name(method), method, endpoint))
        service.policies.add(base_policy(out, endpoint))
        declared = list(declared_runs())
        # The base alone and first: in a batch with an adapter's requests, vLLM's CPU build answers with the adapter
        # (github.com/vllm-project/vllm/pull/48421).
        for runs in ([one for one in declared if one.arm == BASE], declared):
            do_runs(service, runs, out / "comparison.jsonl", measure, lambda _: write_page(page, out), AT_ONCE)


def policy(folder: Path, arm: str, endpoint: str) -> Policy:
    """Return the policy of an adapter, asked as in its training, at the temperature of the comparison."""
    name = policy_name(arm)
    trained = policy_of(folder, name, base_url=endpoint)
    sampling = trained.sampling.model_copy(update={"temperature": _TEMPERATURE, "logprobs": False})
    options = {"base_model": policy_name(BASE), **_OPTIONS}
    changes: dict[str, Any] = {"model": name, "sampling": sampling, "options": options, "timeout_s": 1800.0}
    return trained.model_copy(update=changes)


def base_policy(out: Path, endpoint: str) -> Policy:
    """Return the policy of the base, asked like the adapter with one answer."""
    like = policy(out / folder_name(METHODS[0]), METHODS[0], endpoint)
    name = policy_name(BASE)
    described = f"SmolLM2-135M-Instruct on task {TASK}, before training."
    changes: dict[str, Any] = {"slug": name, "model": name, "description": described, "options": _OPTIONS}
    return like.model_copy(update={**changes, "training_method": "base", "training": None, "checkpoint_digest": None})


def measure(run: RunHandle, declared: DeclaredRun) -> Line:
    """Return the reward vectors of a completed run in the order of its answers."""
    names = declared.problem.space.names
    found = sorted(run.candidates(), key=lambda each: each.number)
    vectors = [None if each.rewards is None else [each.rewards[name] for name in names] for each in found]
    return {"vectors": vectors, "unlocked": run.record.unlocked, "reasons": run.record.reasons}


def write_page(page: Path, out: Path) -> None:
    """Write the results so far: training into a CSV file beside the page, samples, and the comparison last.

    A part without results in ``out`` keeps those of the page.
    """
    rows = training_rows(out)
    if rows.count("\n") > 1:
        page.with_name("smollm2-training.csv").write_text(rows, "utf-8")
    sampled = [line for path in sorted(out.glob("samples/*.jsonl")) for line in read_lines(path)]
    if sampled:
        declared, _, rest = page.read_text("utf-8").partition(f"{SAMPLES}\n")
        compared = rest.partition(RESULTS)[2]
        page.write_text(f"{declared}{SAMPLES}\n\n{samples_table(sampled)}\n{RESULTS}{compared}", "utf-8")
    if compared_runs := read_lines(out / "comparison.jsonl"):
        write_results(page, RESULTS, report(compared_runs))


def training_rows(out: Path) -> str:
    """Return the means of the first and last steps of each complete training, with its time, as CSV."""
    spent = read_lines(out / "training.jsonl")
    measures = [f"{name}_{part}_{_TAIL}" for name in ("mean", "best", "entropy") for part in ("first", "last")]
    rows = [",".join(["method", "seed", "steps", *measures, "minutes"])]
    for method, seed in ((method, seed) for method in METHODS for seed in SEEDS):
        folder = out / folder_name(method, seed)
        if not (folder / "manifest.json").is_file():
            continue
        steps = read_manifest(folder).metrics
        cells = [
            f"{_mean(part, name):.3f}"
            for name in ("mean", "best", "entropy")
            for part in (steps[:_TAIL], steps[-_TAIL:])
        ]
        wall_s = sum(line["wall_s"] for line in spent if (line["method"], line["seed"]) == (method, seed))
        rows.append(",".join([method, str(seed), str(len(steps)), *cells, f"{wall_s / 60:.0f}"]))
    return "\n".join(rows) + "\n"


def _mean(steps: Sequence[dict[str, float]], name: str) -> float:
    return sum(step[name] for step in steps) / len(steps)


if __name__ == "__main__":
    raise SystemExit(main())
