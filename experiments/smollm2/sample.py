"""Sample base and adapters of all training seeds without a service: transformers writes, the sandbox scores.

The comparison by the service takes an hour or two for one training seed; this takes minutes on a GPU for all of them.
Prompts, parsing and scores are the service's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np

from evaluators.evaluator_factory import open_evaluator
from experiments.declared_runs import Line, read_lines
from experiments.smollm2.plan import BASE, EVALUATIONS, SETTINGS, TASK, folder_name, held_out, policy_name
from speciate.domain.policy import Policy, PolicyRole, PromptStyle
from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient
from speciate.prompts.compact import opening_of, until_stop
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion
from speciate.training.tasks import Task, open_task

AT_ONCE: Final = 8
"""Problems of one pass."""


def sample(model: Path, out: Path, arm: str, seed: int, *, gpu: bool) -> None:
    """Write one line for each held-out problem that has none yet: the reward vectors of its answers, and tokens.

    Args:
        model: Folder of the base.
        out: Folder of the results, with the adapters.
        arm: ``base``, or the method of an adapter.
        seed: Seed of its training, and of the sampling.
        gpu: True to sample on a GPU.
    """
    path = out / "samples" / f"{folder_name(arm, seed)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {line["problem"] for line in read_lines(path)}
    missing = [problem for problem in held_out() if problem.slug not in done]
    adapter = None if arm == BASE else out / folder_name(arm, seed)
    if adapter is not None and not (adapter / "manifest.json").is_file():
        sys.stderr.write(f"{folder_name(arm, seed)}: left out, its training is not complete\n")
        return
    if not missing:
        return
    with closing(open_evaluator()) as sandbox, path.open("a", encoding="utf-8") as file:
        writer = _Writer(model, adapter, arm, seed, sandbox, gpu=gpu)
        for start in range(0, len(missing), AT_ONCE):
            for line in writer.lines(missing[start : start + AT_ONCE]):
                file.write(json.dumps({"arm": arm, "seed": seed, **line}) + "\n")
            file.flush()


class _Writer:
    def __init__(
        self, model: Path, adapter: Path | None, arm: str, seed: int, sandbox: EvaluatorClient, *, gpu: bool
    ) -> None:
        import torch

        from speciate.training.models import load_model

        self._task: Task = open_task(TASK, None, sandbox)
        self._policy = Policy(
            slug=policy_name(arm),
            kind="training",
            answers_per_rollout=self._task.answers if arm == "vpo" else 1,
            prompt_style=PromptStyle(SETTINGS["prompt_style"]),
        )
        loaded: Any
        loaded, self._tokenizer = load_model(model)
        if adapter is not None:
            from peft import PeftModel

            loaded = PeftModel.from_pretrained(loaded, str(adapter)).merge_and_unload()
        self._device = "cuda" if gpu else "cpu"
        self._model = loaded.to(self._device, torch.bfloat16).eval()
        torch.manual_seed(seed)

    def lines(self, problems: Sequence[Problem]) -> Iterator[Line]:
        """Yield the results of some problems."""
        m = self._policy.answers_per_rollout
        rollouts = -(-EVALUATIONS // m)
        prompts = [self._prompt(problem) for problem in problems]
        written = self._write([text for text, _ in prompts], rollouts, m * SETTINGS["max_tokens"])
        for i, (problem, (_, opening)) in enumerate(zip(problems, prompts, strict=True)):
            answers, tokens = [], 0
            for ids in written[i * rollouts : (i + 1) * rollouts]:
                text, size = self._ended(ids, opening)
                tokens += size
                finish = "length" if size == m * SETTINGS["max_tokens"] else "stop"
                found = parse_completion(text, problem=problem, policy=self._policy, parent=None, finish_reason=finish)
                answers += [None if each.failure else each.program for each in found]
            answers = answers[:EVALUATIONS]
            readable = [each for each in answers if each is not None]
            scores = iter(self._task.score([(problem, readable)])[0])
            vectors = [None if each is None else list(next(scores)) for each in answers]
            yield {"problem": problem.slug, "vectors": vectors, "tokens": tokens}

    def _prompt(self, problem: Problem) -> tuple[str, str]:
        from speciate.training.models import chat_text

        prompt = build_prompt(problem, PolicyRole.PROPOSE, [], [], self._policy, np.random.default_rng(0))
        opening = opening_of(self._policy, prompt)
        return chat_text(self._tokenizer, prompt.messages(), opening), opening

    def _write(self, prompts: Sequence[str], rollouts: int, most: int) -> list[list[int]]:
        import torch

        self._tokenizer.padding_side = "left"
        asked = self._tokenizer(list(prompts), add_special_tokens=False, padding=True, return_tensors="pt")
        given = {name: tensor.to(self._device) for name, tensor in asked.items()}
        with torch.inference_mode():
            ids = self._model.generate(
                **given,
                do_sample=True,
                temperature=SETTINGS["temperature"],
                top_k=0,
                top_p=1.0,
                num_return_sequences=rollouts,
                max_new_tokens=most,
                pad_token_id=self._tokenizer.pad_token_id,
            )
        found: list[list[int]] = ids[:, given["input_ids"].shape[1] :].tolist()
        return found

    def _ended(self, ids: Sequence[int], opening: str) -> tuple[str, int]:
        """Return the text of a rollout up to what ends it, and its number of tokens with that."""
        from speciate.training.rollout_rules import BlockRule

        end = self._tokenizer.eos_token_id
        ids = ids[: ids.index(end)] if end in ids else ids
        m = self._policy.answers_per_rollout
        rule = BlockRule(self._tokenizer.backend_tokenizer, m, opening)
        size = next((place for place, token in enumerate(ids, 1) if rule(0, token)), len(ids))
        return until_stop(self._tokenizer.decode(ids[:size]), opening, m), size
