"""Processor time of the passes of a training step: with the prompt of a group read once, and read for each rollout."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.parts import CONSOLE, median, show
from speciate.policies import bundled
from speciate.settings import Settings

REPEATS = 5
GROUPS = 32
# Task, rollouts of a group, tokens of a prompt and of the longest rollout: what the recipes of the two tasks come to.
SHAPES = {
    "maze, 8 × 3 answers": ("maze", 8, 44, 66),
    "maze, 24 × 1 answer": ("maze", 24, 44, 22),
    "programs, 8 × 3 answers": ("programs", 8, 20, 24),
    "programs, 24 × 1 answer": ("programs", 24, 20, 8),
}


def run(_: Settings) -> None:
    """Measure and print the table."""
    if find_spec("torch") is None:
        CONSOLE.print("training: left out, torch is not installed (pip install 'speciate[train]').")
        return
    rows = []
    for name, (task, group, prompt, longest) in SHAPES.items():
        plain, shared = _measure(Path(bundled.__file__).parent / f"{task}-base", group, prompt, longest)
        rows.append((name, f"{plain:.2f}", f"{shared:.2f}", f"{plain / shared:.1f}"))
    show(
        f"Training: CPU seconds of one pass with its gradient over {GROUPS} groups, one thread, median of {REPEATS}",
        ["", "prompt read for each rollout", "read once for its group", "ratio"],
        rows,
        "Bundled bases; rollouts have between half of the longest and all of it. The plain pass takes 32 rows at a"
        " time, as training does where prompts are not shared.",
    )


def _measure(base: Path, group: int, prompt: int, longest: int) -> tuple[float, float]:
    import torch

    from speciate.training.models import AT_ONCE, load_model
    from speciate.training.shared_prompts import shared_logps

    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    model, tokenizer = load_model(base)
    count = GROUPS * group
    prompts = torch.randint(3, len(tokenizer), (GROUPS, prompt), generator=draw).repeat_interleave(group, dim=0)
    completions = torch.randint(3, len(tokenizer), (count, longest), generator=draw)
    ends = torch.randint(longest // 2, longest + 1, (count, 1), generator=draw)
    given, written = torch.ones_like(prompts), (torch.arange(longest) < ends).long()

    def plain() -> None:
        for start in range(0, count, AT_ONCE):
            part = slice(start, start + AT_ONCE)
            ids, mask = torch.cat([prompts, completions], dim=1)[part], torch.cat([given, written], dim=1)[part]
            logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=longest + 1).logits[:, :-1]
            every = torch.log_softmax(logits, dim=-1).gather(2, completions[part].unsqueeze(2)).squeeze(2)
            (every * written[part]).sum().backward()

    def shared() -> None:
        logps, _ = shared_logps(model, prompts, given, completions, written, 1.0)
        logps.sum().backward()

    figures: dict[Any, list[float]] = {plain: [], shared: []}
    for _ in range(REPEATS + 1):
        for way, times in figures.items():
            begun = time.process_time()
            way()
            times.append(time.process_time() - begun)
            model.zero_grad()
    return median(figures[plain][1:]), median(figures[shared][1:])
