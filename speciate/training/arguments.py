"""Arguments of TRL's trainer for a run: lengths, and what fits into one pass."""

import os
from pathlib import Path
from typing import Final

import torch
from trl import GRPOConfig

from speciate.domain.policy import PromptStyle
from speciate.training.config import TrainConfig
from speciate.training.models import AT_ONCE
from speciate.training.tasks import Task

_BETWEEN: Final = 32
"""Tokens for what a scaffold writes between two answers, beyond the limit of completions."""


def trl_arguments(
    config: TrainConfig,
    task: Task,
    folder: Path,
    *,
    processes: int = 1,
    cpu: bool = True,
    shared: bool = False,
    context: int | None = None,
    token_bytes: int = 0,
) -> GRPOConfig:
    """Return TRL's arguments for a run; each process gets whole groups.

    ``shared``: passes process a group's prompt once. ``token_bytes``: memory of a pass per token.
    """
    m = task.answers if config.multi_answer else 1
    # The limit is that of serving: otherwise a policy would learn answers that are truncated later.
    longest = m * (task.max_tokens + 1) if task.codec is not None else config.max_tokens
    parts = turns(task, config)
    generated = -(-longest // parts)
    longest += _BETWEEN * (parts - 1)
    local = config.batch // processes
    micro = min(config.micro_batch or _at_once(config, local, longest * token_bytes, cpu=cpu, shared=shared), local)
    prompts = micro // config.group if shared else micro
    pass_bytes = (prompts * config.max_prompt_tokens + micro * longest) * token_bytes
    return GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        max_steps=config.steps * config.updates,
        per_device_train_batch_size=micro // config.updates if config.updates > 1 else micro,
        gradient_accumulation_steps=max(1, local // micro),
        steps_per_generation=max(1, local // micro) * config.updates,
        num_generations=config.group,
        max_completion_length=generated,
        temperature=config.temperature,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=0.01,
        # Without a weight nothing uses the reference, and TRL does not compute it.
        beta=max(config.kl, config.mutation_kl if config.mutation_share > 0 else 0.0),
        loss_type="bnpo",
        scale_rewards="none",
        disable_dropout=True,
        use_cpu=cpu,
        bf16=in_bfloat16(config, cpu=cpu),
        gradient_checkpointing=not cpu and pass_bytes > torch.cuda.get_device_properties(0).total_memory // 2,
        use_vllm=config.use_vllm,
        # Otherwise vLLM reserves memory for the model's full context, which may not fit.
        vllm_max_model_length=None if context is None else min(context, config.max_prompt_tokens + longest),
        logging_steps=1,
        # Between batches only: the rest of a started batch cannot be restored.
        save_steps=config.save_every * config.updates,
        save_total_limit=2,
        disable_tqdm=True,
    )


def turns(task: Task, config: TrainConfig) -> int:
    """Return the generations of one rollout: with a scaffold, one for each answer."""
    scaffolded = config.prompt_style is PromptStyle.SCAFFOLDED and task.codec is None
    return task.answers if scaffolded and config.multi_answer else 1


def in_bfloat16(config: TrainConfig, *, cpu: bool) -> bool:
    return not cpu if config.bfloat16 is None else config.bfloat16


def _at_once(config: TrainConfig, local: int, rollout_bytes: int, *, cpu: bool, shared: bool) -> int:
    """Return the number of rollouts per pass: on a CPU as many whole groups as half of its memory holds.

    Without shared prompts, fewer are faster: as many as fit into its cache.
    """
    if config.updates > 1 or not cpu:
        return local
    most = AT_ONCE
    if shared:
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 // max(1, rollout_bytes)
    groups = local // config.group
    fitting = (n for n in range(1, groups + 1) if groups % n == 0 and n * config.group <= most)
    return config.group * max(fitting, default=1)
