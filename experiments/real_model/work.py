"""The steps of the experiment, each done once: check of the generator, warm-up, and trainings with their evaluation."""

from __future__ import annotations

import fcntl
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from experiments.declared_runs import Line
from experiments.real_model.answers import FORMS, sampled_lines, sampler_of, write_lines
from experiments.real_model.plan import BASE, TASK, Job, Plan
from experiments.real_model.report import WARM_UP, form_of
from experiments.real_model.shared_sandbox import opened_sandbox
from experiments.smollm2.plan import held_out
from speciate.domain.errors import InvalidInputError
from speciate.domain.values import digest_of
from speciate.policies.manifest import read_manifest, weights_digest
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks import open_task

CHECK: Final = "check"
WARMING: Final = "warm-up"
CURVES: Final = ("mean", "best", "best_weighted", "answered", "entropy", "kl", "flat_groups")
"""Measurements of updates that are stored."""
_CHECKED: Final = 8


@dataclass(frozen=True)
class Work:
    """Folders of one plan, and what is to be done in them."""

    plan: Plan
    model: Path
    out: Path
    evidence: Path
    gpu: bool

    @property
    def warmed(self) -> Path:
        return self.out / "base"

    def result(self, name: str) -> Path:
        """Return the file that holds the result of a step when it is done."""
        return self.evidence / (WARM_UP if name == WARMING else f"{name}.json{'' if name == CHECK else 'l'}")

    def do(self, name: str) -> None:
        """Do a step unless its result is there. Another process that does it is waited for."""
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / f"{name}.lock").open("w") as lock, opened_sandbox() as sandbox:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.result(name).is_file():
                return
            if name == CHECK:
                self._check(sandbox)
            elif name == WARMING:
                self._warm_up(sandbox)
            else:
                arm, _, seed = name.rpartition("-")
                self._policy(Job(arm, int(seed)), sandbox)

    def _check(self, sandbox: EvaluatorClient) -> None:
        """Compare greedy tokens of the generator with the logits of transformers in float32."""
        import torch

        from speciate.training.generator import Generator
        from speciate.training.models import load_model
        from speciate.training.recipe import quiet

        with quiet():
            model, tokenizer = load_model(self.model)
            task, recipe, problems = (
                open_task(TASK, None, sandbox),
                self.plan.config("vpo", 0),
                held_out(TASK, _CHECKED),
            )
            sampler = sampler_of(
                task, replace(recipe, lora_rank=0), model, tokenizer, problems, self.out, cpu=not self.gpu
            )
            prompts = [tokenizer(sampler.row(i)["prompt"])["input_ids"] for i in range(_CHECKED)]
            device = torch.device("cuda" if self.gpu else "cpu")
            agrees = Generator(model, device, bfloat16=self.plan.bfloat16).agrees(model.to(device), prompts)
        if not agrees:
            raise InvalidInputError(
                "the generator's greedy tokens are not those of transformers.", remedy="Compare their logits first."
            )
        write_lines(self.result(CHECK), iter([{"prompts": _CHECKED, "device": _device(gpu=self.gpu)}]))

    def _warm_up(self, sandbox: EvaluatorClient) -> None:
        from experiments.real_model.warm import ErringTask, judge_of
        from speciate.training.warm_up import warm_up

        started, measured = time.monotonic(), list[Line]()

        def show(step: int, steps: int, values: dict[str, float]) -> None:
            measured.append({"step": step, **{name: round(value, 4) for name, value in values.items()}})
            say(f"warm-up: update {step} of {steps}, {_figures(values)}")

        config = replace(self.plan.config("vpo", 0), warm_up=self.plan.warm_up)
        task = ErringTask(evaluator=sandbox)
        reason = ""
        try:
            warm_up(
                task,
                config,
                self.model,
                self.warmed,
                resume=True,
                cpu=not self.gpu,
                progress=show,
                judge=judge_of(task),
            )
            measured = [dict(each) for each in read_manifest(self.warmed).metrics]
        except InvalidInputError as error:
            reason = str(error)
        record: Line = {"passed": not reason, "measured": measured, "minutes": round((time.monotonic() - started) / 60)}
        if reason:
            record["reason"] = reason
        else:
            record |= {"base": weights_digest(self.warmed), "origin": weights_digest(self.model)}
        write_lines(self.result(WARMING), iter([record]))

    def _policy(self, job: Job, sandbox: EvaluatorClient) -> None:
        from speciate.training.models import library_versions, load_model
        from speciate.training.recipe import quiet, train_policy

        task, folder, about = open_task(TASK, None, sandbox), self.warmed, dict[str, Any](arm=job.arm, seed=job.seed)
        if job.arm != BASE:
            folder = self.out / job.name

            def show(step: int, steps: int, values: dict[str, float]) -> None:
                say(f"{job.name}: update {step} of {steps}, {_figures(values)}")

            config = self.plan.config(job.arm, job.seed)
            train_policy(task, config, self.warmed, folder, resume=True, cpu=not self.gpu, progress=show)
            metrics = read_manifest(folder).metrics
            about["curve"] = {name: [round(m[name], 4) for m in metrics if name in m] for name in CURVES}
            about["minutes"] = round(sum(m["step_time"] for m in metrics) / 60, 2)
        about |= {
            "manifest": digest_of(read_manifest(folder).model_dump(mode="json")),
            "weights": weights_digest(folder),
            "base": weights_digest(self.warmed),
            "device": _device(gpu=self.gpu),
            "versions": library_versions(),
        }
        started = time.monotonic()
        with quiet():
            model, tokenizer = load_model(self.warmed)
            if job.arm != BASE:
                from peft import PeftModel

                model = PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
            forms = FORMS if job.arm == BASE or self.plan.both_forms else (form_of(job.arm),)
            lines = []
            for line in sampled_lines(
                self.plan, task, model, tokenizer, [*forms], job.seed, self.out, cpu=not self.gpu
            ):
                lines.append(line)
                if len(lines) % 20 == 0:
                    say(f"{job.name}: {len(lines)} of {len(forms) * self.plan.problems} problems answered")
        about["evaluation_minutes"] = round((time.monotonic() - started) / 60, 2)
        write_lines(self.result(job.name), iter([about, *lines]))
        say(f"{job.name}: complete, {about.get('minutes', 0)} + {about['evaluation_minutes']} minutes")


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def _figures(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {values[name]:.3f}" for name in values if name in _SHOWN)


_SHOWN: Final = ("readable", "whole", "success", "ratio", "mean", "answered", "entropy", "step_time")


def _device(*, gpu: bool) -> str:
    if not gpu:
        return "CPU"
    import torch

    return str(torch.cuda.get_device_name(0))
