"""Write rollouts of Llama- and Qwen2-shaped models with torch: one static cache, and CUDA graphs on a GPU.

The keys and values of a prompt are computed once and shared by blocks of rows that continue it. Each row has a position
of its own: without a new prefill it goes back to where a rule ended an answer, and reads inserted tokens. Rows leave
with their last token, and blocks with their last row.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM, Qwen2ForCausalLM

from speciate.training.rollout_rules import Rollout, Rule
from speciate.training.row_blocks import WIDTH, Block, Row, blocks_of, compact

_PREFILL_TOKENS: Final = 2048
_FUSED: Final = re.compile(r"([kqv]|gate|up)_proj")
_CHECKED: Final = 16
_MOST_GAP: Final = 0.5
"""Logits by which a greedy token may fall short of the likeliest: bfloat16 rounds them to about an eighth."""


class Generator:
    """Copy of a model in training that writes its rollouts; graphs and caches stay from one batch to the next."""

    def __init__(self, model: Any, device: torch.device, *, bfloat16: bool) -> None:
        plain = _base_of(model)
        self._config, self._rotary = plain.config, plain.model.rotary_emb
        self._device, self._dtype = device, torch.bfloat16 if bfloat16 else torch.float32
        self._heads, self._kv = self._config.num_attention_heads, self._config.num_key_value_heads
        self._size = getattr(self._config, "head_dim", None) or self._config.hidden_size // self._heads
        self._layers = int(self._config.num_hidden_layers)
        self._weights: dict[str, Tensor] = {}
        self._capacity = (0, 0, 0)
        self._graphs: dict[tuple[int, int, int, float], Any] = {}
        cuda = device.type == "cuda"
        # Tokens of a row between two looks at them, each of which costs on a GPU; what cache lengths are rounded to, so
        # that a graph serves many steps.
        self._chunk, self._bucket = (16, 64) if cuda else (1, 1)
        if cuda:
            self._memory = torch.cuda.mem_get_info(device)[0] // 4
        else:
            self._memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4

    @staticmethod
    def supports(model: Any) -> bool:
        plain = _base_of(model)
        config = plain.config
        return (
            type(plain) in (LlamaForCausalLM, Qwen2ForCausalLM)
            and config.hidden_act == "silu"
            and not getattr(config, "use_sliding_window", False)
            and "dynamic" not in str((config.rope_parameters or {}).get("rope_type"))
        )

    def write(
        self,
        model: Any,
        prompts: Sequence[tuple[Sequence[int], int, Rule | None]],
        *,
        ends: Collection[int],
        temperature: float,
        seed: int,
    ) -> list[Rollout]:
        """Return a rollout for each prompt: token ids, longest rollout, and rule.

        A rollout ends with one of the tokens ``ends`` or by its rule, which is called with the place of its prompt.
        Tokens follow from seed, place and prompt; a temperature of 0 takes the likeliest.
        """
        rows = [Row(i, tuple(prompt), most, rule) for i, (prompt, most, rule) in enumerate(prompts)]
        blocks = blocks_of(rows)
        prompt = max(len(row.prompt) for row in rows) - 1
        own = max(row.limit for row in rows) + self._chunk
        block_bytes = 2 * self._layers * self._kv * self._size * self._dtype.itemsize * (prompt + WIDTH * own)
        at_once = max(1, self._memory // block_bytes)
        with torch.no_grad():
            self._refresh(model)
            for begin in range(0, len(blocks), at_once):
                part = blocks[begin : begin + at_once]
                self._reserve(len(part), prompt, own)
                draws = torch.Generator().manual_seed(seed)  # of all rows, whatever their part
                self._write(part, len(rows), frozenset(ends), temperature, draws)
        return [row.rollout for row in rows]

    def agrees(self, model: Any, prompts: Sequence[Sequence[int]]) -> bool:
        """Return True if greedy tokens are also the likeliest of the model itself, up to rounding."""
        rollouts = self.write(model, [(prompt, _CHECKED, None) for prompt in prompts], ends=(), temperature=0.0, seed=0)
        gaps = []
        for prompt, rollout in zip(prompts, rollouts, strict=True):
            whole = torch.tensor([[*prompt, *rollout.ids]], device=self._device)
            with torch.no_grad():
                logits = model(input_ids=whole).logits[0, len(prompt) - 1 : -1].float()
            gaps.append(logits.max(1).values - logits.gather(1, whole[0, len(prompt) :, None])[:, 0])
        return float(torch.cat(gaps).max()) <= _MOST_GAP

    def _refresh(self, model: Any) -> None:
        """Copy the weights, in place: graphs hold their addresses. Matrices with one input become one."""
        parts: defaultdict[str, list[Tensor]] = defaultdict(list)
        for name, tensor in sorted(_merged(_base_of(model)), key=itemgetter(0)):
            parts[_FUSED.sub("fused", name)].append(tensor)
        for name, tensors in parts.items():
            if name not in self._weights:
                # The residual stream and its norms stay in float32, as under autocast.
                dtype = torch.float32 if "norm" in name else self._dtype
                shape = (sum(map(len, tensors)), *tensors[0].shape[1:])
                self._weights[name] = torch.empty(shape, dtype=dtype, device=self._device)
            self._weights[name].copy_(torch.cat(tensors))

    def _reserve(self, blocks: int, prompt: int, own: int) -> None:
        """Make room for blocks with prompts and rollouts of these lengths."""
        wanted = (blocks, self._rounded(prompt), self._rounded(own))
        if all(need <= have for need, have in zip(wanted, self._capacity, strict=True)):
            return
        self._capacity = blocks, prompt, own = tuple(map(max, wanted, self._capacity))  # type: ignore[assignment]
        self._graphs.clear()
        if self._device.type == "cuda":  # a pool without graphs cannot be used again
            self._pool = torch.cuda.graph_pool_handle()
        rows, kind = blocks * WIDTH, {"dtype": self._dtype, "device": self._device}
        # Keys and values: (layers, blocks or rows, heads, length, size).
        self._shared, self._own = (
            [torch.zeros(self._layers, count, self._kv, length, self._size, **kind) for _ in "kv"]
            for count, length in ((blocks, prompt), (rows, own))
        )
        # Of each row: the token to read, its place among the own ones, the length of the prompt, what to write or -1.
        self._token, self._count, self._length, self._forced = torch.zeros(4, rows, dtype=torch.int64).to(self._device)
        self._uniform = torch.zeros(rows, device=self._device)
        self._every = torch.arange(max(rows, prompt + own), device=self._device)
        cos, sin = self._rotary(torch.zeros(1, **kind), self._every[None, : prompt + own])
        self._cos, self._sin = cos[0, :, None], sin[0, :, None]

    def _write(
        self, blocks: list[Block], total: int, ends: frozenset[int], temperature: float, draws: torch.Generator
    ) -> None:
        prompt, steps = self._prefill(blocks), 0
        rows = [row for block in blocks for row in block]
        self._length[: len(rows)] = torch.tensor([len(row.prompt) - 1 if row else 0 for row in rows])
        self._go_on({place: (row.prompt[-1] if row else 0, 0) for place, row in enumerate(rows)})
        while blocks:
            size = self._size_of(len(blocks))
            own = min(self._rounded(steps + self._chunk), self._capacity[2])
            # Drawn for all rows, so that tokens do not depend on which others are left.
            uniform = torch.rand(total, self._chunk, generator=draws)[[row.index if row else 0 for row in rows]]
            forced = [row.next_pending(self._chunk) if row else [] for row in rows]
            sampled = self._run((size, prompt, own, temperature), uniform, forced)
            steps += self._chunk
            outcomes = {
                place: row.take(tokens[len(read) :], ends)
                for place, (row, tokens, read) in enumerate(zip(rows, sampled, forced, strict=True))
                if row is not None
            }
            self._go_on({place: outcome for place, outcome in outcomes.items() if isinstance(outcome, tuple)})
            ended = [place for place, outcome in outcomes.items() if outcome is True]
            for place in ended:
                blocks[place // WIDTH][place % WIDTH] = None
            if ended:
                fewer, moved_rows, moved_prompts = compact(blocks)
                if self._size_of(len(fewer)) < size:
                    blocks = fewer
                    self._move(moved_rows, moved_prompts, steps)
                rows = [row for block in blocks for row in block]

    def _size_of(self, blocks: int) -> int:
        """Return the blocks of a step that has room for these: on a GPU few sizes, which share the graphs."""
        unit = 1 if self._bucket == 1 else 1 << max(0, blocks.bit_length() - 2)
        return min(-(-blocks // unit) * unit, self._capacity[0])

    def _rounded(self, length: int) -> int:
        return -(-length // self._bucket) * self._bucket

    def _go_on(self, tokens: dict[int, tuple[int, int]]) -> None:
        """Have rows go on with a token at a place among their own."""
        if tokens:
            rows = torch.tensor([*tokens], device=self._device)
            self._token[rows], self._count[rows] = torch.tensor([*tokens.values()], device=self._device).T

    def _move(self, rows: dict[int, int], prompts: dict[int, int], length: int) -> None:
        """Move rows with their first tokens, and prompts between blocks, to new places from old ones."""
        to, place = torch.tensor([[*rows], [*rows.values()]], dtype=torch.int64, device=self._device)
        for state in (self._token, self._count, self._length):
            state[to] = state[place]
        for cache in self._own:
            cache[:, to, :, :length] = cache[:, place, :, :length]
        to, place = torch.tensor([[*prompts], [*prompts.values()]], dtype=torch.int64, device=self._device)
        for cache in self._shared:
            cache[:, to] = cache[:, place]

    def _prefill(self, blocks: list[Block]) -> int:
        """Compute the keys and values of every prompt but for its last token; return the length to read of them."""
        places: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for number, block in enumerate(blocks):
            places[block[0].prompt].append(number)  # type: ignore[union-attr]  # a new block begins with a row
        prompts = sorted(places, key=len)
        most = length = len(prompts[-1]) - 1
        while prompts and (length := len(prompts[-1]) - 1):
            count = max(1, _PREFILL_TOKENS // length)
            part, prompts = prompts[-count:], prompts[:-count]
            ids = torch.tensor([[*prompt[:-1], *[0] * (length + 1 - len(prompt))] for prompt in part])
            repeated = [i for i, prompt in enumerate(part) for _ in places[prompt]]
            to = torch.tensor([number for prompt in part for number in places[prompt]], device=self._device)

            def attend(
                layer: int, q: Tensor, k: Tensor, v: Tensor, to: Tensor = to, repeated: list[int] = repeated
            ) -> Tensor:
                q, k, v = (states.transpose(1, 2) for states in (q, k, v))
                for cache, states in zip(self._shared, (k, v), strict=True):
                    cache[layer][to, :, : states.shape[2]] = states[repeated]
                # Padding stands on the right, where no token of the prompt looks.
                return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)

            self._hidden(ids.to(self._device), self._every[:length], attend)
        return most if self._bucket == 1 else self._capacity[1]

    def _run(
        self, key: tuple[int, int, int, float], uniform: Tensor, forced: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Continue the rows by a chunk; return its tokens, of each row."""
        rows, written = len(uniform), torch.full_like(uniform, -1, dtype=torch.int64)
        for place, tokens in enumerate(forced):
            if tokens:
                written[place, : len(tokens)] = torch.tensor(tokens)
        steps = []
        for drawn, fixed in zip(uniform.T.to(self._device), written.T.to(self._device), strict=True):
            self._uniform[:rows], self._forced[:rows] = drawn, fixed
            if key in self._graphs:
                self._graphs[key].replay()
            else:
                self._step(*key)
                if self._device.type == "cuda":  # that step has initialised what must not be while a graph is captured
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, pool=self._pool):
                        self._step(*key)
                    self._graphs[key] = graph
            steps.append(self._token[:rows].clone())
        sampled: list[list[int]] = torch.stack(steps, dim=1).tolist()
        return sampled

    def _step(self, blocks: int, prompt: int, own: int, temperature: float) -> None:
        """Read a token of each row and write the next one in its place; all shapes and addresses are static."""
        rows = blocks * WIDTH
        token, count, forced = self._token[:rows], self._count[:rows], self._forced[:rows]
        length = self._length[:rows, None]
        seen = torch.cat([self._every[:prompt] < length, self._every[:own] <= count[:, None]], dim=1)
        bias = torch.zeros_like(seen, dtype=self._dtype).masked_fill_(~seen, -torch.inf)[:, None, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = (cache[layer, :rows] for cache in self._own)
            keys[self._every[:rows], :, count], values[self._every[:rows], :, count] = k, v
            shared_keys, shared_values = (cache[layer, :blocks, :, :prompt] for cache in self._shared)
            q = q.unflatten(1, (self._kv, -1)) * self._size**-0.5  # (rows, heads of keys, queries of each, size)
            scores = torch.cat([_by_row(_by_block(q) @ shared_keys.mT), q @ keys[:, :, :own].mT], dim=-1)
            weights = torch.softmax(scores + bias, dim=-1, dtype=torch.float32).to(self._dtype)
            of_prompt, of_own = weights.split([prompt, own], dim=-1)
            return (_by_row(_by_block(of_prompt) @ shared_values) + of_own @ values[:, :, :own]).flatten(1, 2)

        logits = self._linear("lm_head", self._hidden(token, length[:, 0] + count, attend)).float()
        if temperature:
            mass = torch.softmax(logits / temperature, dim=-1).cumsum(-1)
            target = self._uniform[:rows, None] * mass[:, -1:]
            sampled = torch.searchsorted(mass, target, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
        else:
            sampled = logits.argmax(-1)
        token.copy_(torch.where(forced < 0, sampled, forced))
        # Gaps count, too, and must stay within the cache.
        count.copy_((count + 1).clamp(max=self._capacity[2] - 1))

    def _hidden(
        self, ids: Tensor, positions: Tensor, attend: Callable[[int, Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Return the last hidden states of tokens; ``attend`` gets a layer and its queries, keys and values."""
        x = self._weights["model.embed_tokens.weight"][ids].float()
        cos, sin = self._cos[positions], self._sin[positions]
        for i in range(self._layers):
            layer = f"model.layers.{i}"
            states = self._linear(f"{layer}.self_attn.fused", self._normed(f"{layer}.input_layernorm", x))
            kq, v = states.unflatten(-1, (-1, self._size)).split([self._kv + self._heads, self._kv], dim=-2)
            first, second = kq.chunk(2, dim=-1)
            k, q = (kq * cos + torch.cat([-second, first], dim=-1) * sin).split([self._kv, self._heads], dim=-2)
            x = x + self._linear(f"{layer}.self_attn.o_proj", attend(i, q, k, v).flatten(-2))
            states = self._linear(f"{layer}.mlp.fused", self._normed(f"{layer}.post_attention_layernorm", x))
            gate, up = states.chunk(2, dim=-1)
            x = x + self._linear(f"{layer}.mlp.down_proj", functional.silu(gate) * up)
        return self._normed("model.norm", x)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self._weights[f"{name}.weight"], self._weights.get(f"{name}.bias"))

    def _normed(self, name: str, x: Tensor) -> Tensor:
        weight = self._weights[f"{name}.weight"]
        return functional.rms_norm(x, weight.shape, weight, self._config.rms_norm_eps).to(self._dtype)


def _by_block(x: Tensor) -> Tensor:
    """Return (rows, heads, n, m) as (blocks, heads, rows of a block × n, m)."""
    return x.unflatten(0, (-1, WIDTH)).transpose(1, 2).flatten(2, 3)


def _by_row(x: Tensor) -> Tensor:
    """Return the inverse of ``_by_block``."""
    return x.unflatten(2, (WIDTH, -1)).transpose(1, 2).flatten(0, 1)


def _base_of(model: Any) -> Any:
    """Return the model of transformers within one of PEFT, with the adapter's layers in it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _merged(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the weights of a model by name, each with the change that an adapter makes to it."""
    adapted = {name: part for name, part in model.named_modules() if hasattr(part, "get_delta_weight")}
    for name, part in adapted.items():
        own = part.base_layer.state_dict()
        yield from ((f"{name}.{each}", tensor) for each, tensor in own.items() if each != "weight")
        yield f"{name}.weight", own["weight"] + part.get_delta_weight("default").detach()
    for name, tensor in model.state_dict().items():
        if not name.startswith(tuple(f"{place}." for place in adapted)):
            yield name, tensor.detach()
