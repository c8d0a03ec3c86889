"""Train a policy by reinforcement. The file follows the order of a training step.

1. Draw prompts: problems from scratch, and mutations of the policy's own earlier answers (``_draw_prompts``).
2. Write G rollouts for each prompt; one with several answers ends at the m-th (``_generate_single_turn``). What a
   scaffold writes between two answers has no loss.
3. Parse answers as the service does and score them (``_calculate_rewards``): an (m, k) matrix for each rollout.
4. Turn the matrices into advantages (``ESTIMATORS``).
5. Minimise the clipped loss plus a KL divergence from the base (``_compute_loss``).

Everything else is TRL's GRPOTrainer: batches, optimisers, checkpoints, several GPUs, vLLM, LoRA. It differs from GRPO
in three points: rewards stay vectors until the estimator, mutation prompts have their own KL weight, and the loss is a
mean over the tokens of the batch. A test checks the signatures of TRL's private methods that are overridden, since
TRL may change them without notice.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_callback import PrinterCallback
from trl import GRPOTrainer

from speciate.domain.arrays import FloatArray
from speciate.domain.candidate import Individual
from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy, PolicyRole, PromptFormat, PromptStyle
from speciate.domain.problem import Problem
from speciate.domain.target import TargetSet
from speciate.prompts.codecs.codec import CLOSE
from speciate.prompts.compact import opening_of, until_stop
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import Answer, parse_completion
from speciate.training.advantages import ESTIMATORS
from speciate.training.arguments import trl_arguments, turns
from speciate.training.config import TrainConfig
from speciate.training.generator import Generator
from speciate.training.losses import clipped_losses, low_variance_kl
from speciate.training.models import chat_text, lora_config, token_bytes, writing
from speciate.training.rollout_rules import BlockRule, ClosingRule, Rollout, Rule
from speciate.training.rollouts import TrainingPopulations, measure, stack_rollouts
from speciate.training.run_files import CHECKPOINTS, read_state, state_file, write_json
from speciate.training.shared_prompts import shared_logps
from speciate.training.tasks import Task, scores_of

_log = logging.getLogger(__name__)

_PROBES: Final = 4
"""Prompts by which an endpoint is verified."""
_CHECKED: Final = 4
"""Prompts by which the generator is compared with its model on a GPU."""


class VectorTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        problems: Sequence[Problem],
        folder: Path,
        *,
        cpu: bool,
        callbacks: list[TrainerCallback],
    ) -> None:
        processes = int(PartialState(cpu=cpu).num_processes)
        self._generates = not config.use_vllm and Generator.supports(model)
        args = trl_arguments(
            config,
            task,
            folder / CHECKPOINTS,
            processes=processes,
            cpu=cpu,
            shared=self._generates and processes == 1,
            context=getattr(model.config.get_text_config(), "max_position_embeddings", None),
            token_bytes=token_bytes(model.config.get_text_config()),
        )
        self.task, self.problems, self.config = task, problems, config
        self.populations = TrainingPopulations(config.remembered)
        self.rng = np.random.default_rng([config.seed, args.process_index])
        self._close = tokenizer.convert_tokens_to_ids(CLOSE) if task.codec is not None else None
        self._advantages: FloatArray = np.zeros(0)
        self._met: dict[int, TargetSet] = {}
        self._sampled: list[tuple[int, tuple[float, ...]]] = []
        self._single = policy_of(task, 1, config.prompt_style)
        self._asking = policy_of(task, task.answers, config.prompt_style) if config.multi_answer else self._single
        self._turns = turns(task, config)
        # A pass over the prompts alone needs a cache, which checkpointing excludes, and groups in one process.
        self._shares = self._generates and processes == 1 and not args.gradient_checkpointing
        self._generator: Generator | None = None
        # TRL adds the tokenizer's first token to prompts that are texts, and chat templates begin with it, too.
        self._begin = tokenizer.decode(tokenizer("")["input_ids"])
        super().__init__(
            model=model,
            reward_funcs=_mean_reward,
            args=args,
            train_dataset=Dataset.from_dict({"prompt": [""] * config.batch}),  # replaced by ``_draw_prompts``
            processing_class=tokenizer,
            callbacks=callbacks,
            peft_config=lora_config(config.lora_rank) if config.lora_rank else None,
        )
        self.remove_callback(PrinterCallback)

    def _draw_prompts(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return rows with prompts, from scratch or for a mutation; the rows of a group share one prompt.

        Problems are drawn here and not by TRL's sampler, which restarts when a run is resumed.
        """
        rows = []
        for _ in range(0, len(inputs), self.num_generations):
            index, parent = self._draw_problem(), None
            if len(self.populations) and self.rng.random() < self.config.mutation_share:
                index, parent = self.populations.draw(self.rng)
            rows += [self.row(index, parent)] * self.num_generations
        return rows

    def _draw_problem(self) -> int:
        numbers: Sequence[int] = range(len(self.problems))
        if self.config.unsolved_only:
            numbers = [number for number in numbers if not self._solved(number)] or numbers
        return numbers[int(self.rng.integers(len(numbers)))]

    def _solved(self, number: int) -> bool:
        return self._met.get(number, 0) == (1 << len(self.problems[number].targets)) - 1

    def _note_met(self, number: int, vector: tuple[float, ...]) -> None:
        self._met[number] = self._met.get(number, 0) | self.problems[number].targets_met(vector)
        if self._solved(number):
            self.populations.forget(number)

    def _prompt(self, problem: Problem, parent: Individual | None) -> dict[str, Any]:
        role = PolicyRole.PROPOSE if parent is None else PolicyRole.MUTATE
        policy = self._asking if self._asking.answers_for(role) > 1 else self._single
        prompt = build_prompt(problem, role, [] if parent is None else [parent], [], policy, self.rng)
        if policy.prompt_format is PromptFormat.COMPLETION:
            return {"prompt": prompt.text(), "policy": policy}
        opening = opening_of(policy, prompt)
        if self._turns > 1 and not opening:
            raise InvalidInputError(f"prompt_style = scaffolded: {problem.slug!r} asks for no single Python program.")
        text = chat_text(self.processing_class, prompt.messages(), opening)
        ids = self.processing_class(text, add_special_tokens=False)["input_ids"]
        if (size := len(ids)) > self.config.max_prompt_tokens:
            raise InvalidInputError(
                f"the prompt of problem {problem.slug!r} has {size} tokens, more than max_prompt_tokens ="
                f" {self.config.max_prompt_tokens}.",
                remedy="Raise it with --set if model and memory allow it, or remove the problem.",
            )
        whole = size + self.config.max_tokens
        longest = getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or whole
        if parent is None and whole > longest:  # that of a mutation may appear late, and most models read a little more
            message = f"the prompt of {problem.slug!r} has {size} tokens: with max_tokens the model reads {longest}."
            raise InvalidInputError(message, remedy="Lower max_tokens with --set, or remove the problem.")
        return {"prompt": text.removeprefix(self._begin), "policy": policy, "opening": opening}

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        rows = self._draw_prompts(inputs)
        self._limit_rollouts(rows)
        output: dict[str, Any] = super()._generate_and_score_completions(rows)
        device = output["advantages"].device
        kl = [self.config.kl if row["parent"] is None else self.config.mutation_kl for row in rows]
        output["advantages"] = torch.tensor(self._advantages, dtype=torch.float32, device=device)
        output["kl_weight"] = torch.tensor(kl, dtype=torch.float32, device=device)
        return output

    def sample_rewards(self) -> list[FloatArray]:
        """Sample one batch without learning from it; return the rewards of each problem's readable answers, (n, k)."""
        self._generate_and_score_completions([{}] * self.config.batch)
        by_problem: dict[int, list[tuple[float, ...]]] = {}
        for problem, vector in self._sampled:
            by_problem.setdefault(problem, []).append(vector)
        return [np.array(vectors) for vectors in by_problem.values()]

    def sample_answers(self, indices: Sequence[int]) -> list[list[list[Answer]]]:
        """Write a group of rollouts for each problem; return the answers of each rollout."""
        rows = [row for row in map(self.row, indices) for _ in range(self.num_generations)]
        self._limit_rollouts(rows)
        _, ids, _, completions, *_ = self._generate([row["prompt"] for row in rows])
        read = [self._answers(*one) for one in zip(rows, completions, ids, strict=True)]
        return [read[i : i + self.num_generations] for i in range(0, len(rows), self.num_generations)]

    def probe_prompts(self) -> list[str]:
        """Return a few prompts, always the same ones, without using the training's random numbers."""
        rng, self.rng = self.rng, np.random.default_rng(0)
        checked = _PROBES if self.task.codec is not None else len(self.problems)  # all, to refuse one that is too long
        rows = [self.row(index) for index in range(min(checked, len(self.problems)))]
        self.rng = rng
        return [str(row["prompt"]) for row in rows[:_PROBES]]

    def row(self, index: int, parent: Individual | None = None) -> dict[str, Any]:
        """Return problem, parent, policy, prompt and its opening: one row of a batch."""
        return {"problem": index, "parent": parent, **self._prompt(self.problems[index], parent)}

    def _limit_rollouts(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rules = [self._rule(row) for row in rows]
        self._limits = [self._limit(*pair) for pair in zip(rows, self._rules, strict=True)]

    def _generate(self, prompts: list[Any]) -> Any:
        """Mark the tokens of a scaffold, as TRL marks those of tools: they have no loss."""
        output = super()._generate(prompts)
        return (*output[:2], self._written, *output[3:]) if self._turns > 1 else output

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, has_tool_images: bool = False
    ) -> tuple[list[list[int]], Any]:
        """Write the rollouts; with TRL, each answer of a scaffold takes a generation of its own."""
        if (write := self._writer(prompt_ids)) is not None:
            rollouts = write(
                self.accelerator.unwrap_model(self.model),
                list(zip(prompt_ids, self._limits, self._rules, strict=True)),
                ends=self.eos_token_ids,
                temperature=self.config.temperature,
                seed=int(self.rng.integers(1 << 48)),
            )
            self._written = [rollout.written for rollout in rollouts]
            return [rollout.ids for rollout in rollouts], None
        rollouts, logprobs = [Rollout() for _ in prompt_ids], None
        unfinished = set(range(len(rollouts)))
        for turn in range(self._turns):
            started = [[*prompt, *rollout.ids] for prompt, rollout in zip(prompt_ids, rollouts, strict=True)]
            completions, logprobs = super()._generate_single_turn(
                started, images, multimodal_fields, num_generations if turn == 0 else 1, has_tool_images
            )
            for i in sorted(unfinished):
                sampled = completions[i][: self._limits[i]]
                if not rollouts[i].extend(sampled, self._rules[i], [] if logprobs is None else logprobs[i]):
                    unfinished.remove(i)
        self._written = [rollout.written for rollout in rollouts]
        return [rollout.ids for rollout in rollouts], logprobs and [rollout.logprobs for rollout in rollouts]

    def _writer(self, prompt_ids: Any) -> Callable[..., list[Rollout]] | None:
        """Return what writes the rollouts, or None for TRL: with vLLM, other architectures, or distributed weights."""
        if not self._generates or self.is_fsdp_enabled or self.is_deepspeed_enabled:
            return None
        if self._generator is None:
            model, device = self.accelerator.unwrap_model(self.model), self.accelerator.device
            self._generator = Generator(model, device, bfloat16=self.args.bf16)
            prompts = prompt_ids[:: self.num_generations][:_CHECKED]
            if device.type == "cuda" and not self._generator.agrees(self.model, prompts):
                _log.warning("the generator's tokens are not those of the model: transformers writes the rollouts")
                self._generates, self._generator = False, None
                return None
        return self._generator.write

    def _rule(self, row: dict[str, Any]) -> Rule | None:
        """Return what ends a rollout; without a limit of answers a policy learns to write ever more."""
        policy, tokenizer = row["policy"], self.processing_class
        answers, opening = policy.answers_per_rollout, row.get("opening")
        if opening:
            limit = self.args.max_completion_length if self._turns > 1 and answers > 1 else None
            return BlockRule(tokenizer.backend_tokenizer, answers, opening, end=tokenizer.eos_token_id, limit=limit)
        return None if self._close is None or answers == 1 else ClosingRule(self._close, answers)

    def _limit(self, row: dict[str, Any], rule: Rule | None) -> int:
        """Return the most tokens of a rollout, as in serving."""
        if self._close is not None and row["policy"].answers_per_rollout == 1:
            return int(self.task.max_tokens) + 1
        return max(rule.longest if isinstance(rule, BlockRule) else 0, int(self.args.max_completion_length))

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: Any,  # noqa: ARG002 - the hook's signature
        completions: Sequence[Any],
        completion_ids_list: Sequence[Sequence[int]],
    ) -> torch.Tensor:
        """Score the answers of this process; TRL gets their mean, to log it."""
        usable = []
        for row, completion, ids in zip(inputs, completions, completion_ids_list, strict=True):
            valid = (each.program for each in self._answers(row, completion, ids) if each.failure is None)
            usable.append([program for program in valid if program != _program(row)])
        scores = scores_of(
            self.task, [(self.problems[row["problem"]], each) for row, each in zip(inputs, usable, strict=True)]
        )
        m = self._asking.answers_per_rollout
        rewards, answered = stack_rollouts(scores, answers=m, dimensions=len(self.task.rewards))
        self._sampled = []
        for row, programs, vectors in zip(inputs, usable, scores, strict=True):
            for program, vector in zip(programs, vectors, strict=True):
                self._sampled.append((row["problem"], vector))
                self.populations.add(row["problem"], program, vector)
                if self.config.unsolved_only:
                    self._note_met(row["problem"], vector)
        self._estimate(rewards, answered, inputs)
        means = rewards.mean(axis=(1, 2))[:, None]
        return self.accelerator.gather(torch.tensor(means, dtype=torch.float32, device=self.accelerator.device))

    def _answers(self, row: dict[str, Any], completion: Any, ids: Sequence[int]) -> list[Answer]:
        """Return the answers of a rollout, read as a run reads them."""
        problem, policy, parent = self.problems[row["problem"]], row["policy"], _program(row)
        written = completion if isinstance(completion, str) else str(completion[0]["content"])
        text = until_stop(written, row.get("opening", ""), policy.answers_per_rollout)
        ended = text != written or len(ids) < self.args.max_completion_length or policy.codec is not None
        finish = "stop" if ended or ids[-1] == self.processing_class.eos_token_id else "length"
        return parse_completion(text, problem=problem, policy=policy, parent=parent, finish_reason=finish)

    def _estimate(self, rewards: FloatArray, answered: NDArray[np.bool_], rows: Sequence[dict[str, Any]]) -> None:
        """Compute the advantages of this process's rollouts. Groups never span processes (``trl_arguments``)."""
        groups = np.arange(len(rows)) // self.num_generations
        scratch = np.array([row["parent"] is None for row in rows])
        config = replace(self.config.estimator, step=int(self.state.global_step) // self.config.updates)
        self._advantages = ESTIMATORS[self.config.method](rewards, groups, config=config, rng=self.rng)
        mode = "train" if self.model.training else "eval"
        flat = self._advantages.reshape(-1, self.num_generations).any(axis=1) == 0
        measured = measure(rewards, answered, scratch, self.num_generations, self.rng)
        for name, value in {**measured, "flat_groups": float(flat.mean())}.items():
            self._metrics[mode][f"speciate/{name}"].append(value)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **options: Any
    ) -> Any:
        if not self._shares:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, **options
            )
        ids, mask = (tensor.tensor_split([-logits_to_keep], dim=1) for tensor in (input_ids, attention_mask))
        rows = options.get("batch_size") or len(input_ids)
        split = zip(*(tensor.split(rows) for tensor in (ids[0], mask[0], ids[1], mask[1])), strict=True)
        parts = [shared_logps(model, p, pm, c, cm, self.temperature) for p, pm, c, cm in split]
        return *(torch.cat(each) for each in zip(*parts, strict=True)), None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        inputs = trimmed(inputs)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)  # (B, T)
        logps, entropies, _ = self._get_per_token_logps_and_entropies(
            model, ids, attention, mask.size(1), compute_entropy=True
        )
        # Padding can be so improbable that its divergence is infinite: times the mask, that would be NaN.
        logps, entropies = logps.masked_fill(mask == 0, 0.0), entropies.masked_fill(mask == 0, 0.0)
        old = inputs.get("old_per_token_logps")
        old = logps.detach() if old is None else old.masked_fill(mask == 0, 0.0)
        losses = clipped_losses(logps, old, inputs["advantages"].unsqueeze(1), self.config.clip)
        if "importance_sampling_ratio" in inputs:  # vLLM's probabilities differ slightly
            losses = losses * inputs["importance_sampling_ratio"]
        kl = torch.zeros_like(logps)
        if self.beta:
            kl = low_variance_kl(logps, inputs["ref_per_token_logps"].masked_fill(mask == 0, 0.0))
        losses = losses + inputs["kl_weight"].unsqueeze(1) * kl
        # num_items_in_batch counts the tokens of the whole batch of rollouts; each update sees its share.
        tokens = inputs["num_items_in_batch"].clamp(min=1) / self.accelerator.num_processes
        updates = self.args.steps_per_generation / self.current_gradient_accumulation_steps
        mode = "train" if self.model.training else "eval"
        for name, values in (("entropy", entropies), ("kl", kl)):
            mean = (values.detach() * mask).sum() / mask.sum().clamp(min=1)
            self._metrics[mode][name].append(self.accelerator.gather(mean).mean().item())
        return (losses * mask).sum() / (tokens / updates)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        state = {
            "rng": self.rng.bit_generator.state,
            "populations": self.populations.state(),
            "processes": self.args.world_size,
            "met": list(self._met.items()),
        }
        with writing(folder):
            super()._save_checkpoint(model, trial)
            # A checkpoint is complete when the files of all processes exist (``is_complete``).
            write_json(state_file(folder, self.args.process_index), state)

    def restore(self, checkpoint: Path) -> None:
        state = read_state(checkpoint, self.args.process_index, self.args.world_size)
        self.rng.bit_generator.state = state["rng"]
        self.populations.restore(state["populations"])
        self._met = dict(state["met"])

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write no model card: the manifest records the origin of a checkpoint."""


def trimmed(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of one pass without columns that hold only padding."""
    shape = inputs["completion_mask"].shape
    longest = max(1, int(inputs["completion_mask"].sum(1).max()))
    prompt = int(inputs["prompt_mask"].sum(1).max())
    short = {n: v[:, :longest] if torch.is_tensor(v) and v.shape == shape else v for n, v in inputs.items()}
    return short | {name: inputs[name][:, -prompt:] for name in ("prompt_ids", "prompt_mask")}


def policy_of(task: Task, answers: int, style: PromptStyle = PromptStyle.STANDARD) -> Policy:
    """Return the policy as registered with the service, so that prompts and parsing are those of the service."""
    policy = Policy(slug="training", kind="training", answers_per_rollout=answers)
    completion = {"codec": task.codec, "prompt_format": PromptFormat.COMPLETION}
    return policy.model_copy(update={"prompt_style": style} if task.codec is None else completion)


def _mean_reward(**_: Any) -> list[float]:
    """Stand for TRL's reward functions, for its logs only; ``_calculate_rewards`` never calls it."""
    raise NotImplementedError


def _program(row: dict[str, Any]) -> str | None:
    return None if row["parent"] is None else str(row["parent"].program)
