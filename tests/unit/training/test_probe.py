"""Endpoints of `speciate serve` that sample from other weights than they should, in the ways that servers have."""

import shutil
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

pytest.importorskip("torch", reason="needs the extra 'train'")
from transformers import AutoTokenizer, LlamaForCausalLM
from typer.testing import CliRunner

from speciate.cli.app import app
from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy, Probe
from speciate.inference.app import create_app
from speciate.inference.engine import Engine
from speciate.inference.sequences import SequenceTable
from speciate.policies.manifest import Manifest, read_manifest, write_manifest
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.policies.verification import TOLERANCE, Verdict, judged, verify
from speciate.training.models import load_model
from speciate.training.probe import trace
from tests.support.http_server import serve_app
from tests.unit.inference.checkpoints import write, write_bytes

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
PROMPTS = ("w3 w17 w4 w9 w30 w2 w8", "w11 w5 w6 w7 w7", "w40 w1 w22 w13 w31 w9", "w8 w8 w19 w2 w45 w33 w21 w20 w10")
LAYER = "model.layers.1."


def adapted(base, folder, seed, *, scale=1.0, only=""):
    """Write a base with a low-rank change of its projections, as an adapter makes it."""
    rng = np.random.default_rng(seed)
    shutil.copytree(base, folder)
    weights = load_file(folder / "model.safetensors")
    for name, matrix in sorted(weights.items()):
        if "proj" in name:
            rank = [rng.normal(0, 0.2, (size, 2)) for size in matrix.shape]
            if name.startswith(only):
                weights[name] = (matrix + scale * rank[0] @ rank[1].T).astype(np.float32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def traced(folder):
    return trace(LlamaForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder), PROMPTS)


@pytest.fixture(scope="module", params=range(3))
def lab(request, tmp_path_factory):
    """Folders of a base and its trained versions by name, and the probe of the training."""
    root = tmp_path_factory.mktemp("lab")
    base = write(root / "base", seed=request.param)
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"}
    (base / "tokenizer_config.json").write_text(str(tokenizer).replace("'", '"'))
    seed = 10 + request.param
    folders = {
        "base": base,
        "trained": adapted(base, root / "trained", seed),
        "older": adapted(base, root / "older", seed, scale=0.6),
        "unscaled": adapted(base, root / "unscaled", seed, scale=0.25),
        "partly": adapted(base, root / "partly", seed, only=LAYER),
        "other": adapted(base, root / "other", 99),
    }
    return folders, Probe(prompts=PROMPTS, trained=traced(folders["trained"]), base=traced(base))


@contextmanager
def endpoint(folders, probe, **options):
    """A client of a server without digests in its registration, as that of vLLM."""
    with serve_app(create_app(folders)) as url:
        policy = Policy(slug="p", kind="openai_compatible", base_url=f"{url}/v1", model="adapter", probe=probe,
                        prompt_format="completion", sampling={"max_tokens": 9}, options=options)  # fmt: skip
        with OpenAICompatible(policy) as client:
            yield client


def test_the_trained_weights_are_recognised(lab):
    folders, probe = lab
    with endpoint({"adapter": folders["trained"], "base": folders["base"]}, probe, base_model="base") as client:
        assert "it answers with the trained weights (0.000 nats per token" in client.ping()


def test_tokens_with_the_same_text_are_no_other_weights(tmp_path):
    """Most bytes of other scripts are no text of their own: the likeliest one stands for all of them."""
    trained, base = (write_bytes(tmp_path / str(seed), seed=seed) for seed in (3, 4))
    traces = [trace(*load_model(folder), PROMPTS) for folder in (trained, base)]
    assert len(traces[0][0][0]) < 24, "some of the likeliest have one text"
    probe = Probe(prompts=PROMPTS, trained=traces[0], base=traces[1])
    with endpoint({"adapter": trained}, probe) as client:
        assert "it answers with the trained weights (0.000 nats per token" in client.ping()


@pytest.mark.parametrize(
    ("served", "said"),
    [("base", "the base"), ("older", "a part of the trained change"), ("unscaled", ""), ("partly", ""), ("other", "")],
)
def test_other_weights_under_the_name_are_refused(lab, served, said):
    folders, probe = lab
    with (
        endpoint({"adapter": folders[served]}, probe) as client,
        pytest.raises(PolicyUnavailableError, match=f"adapter answers with {said}"),
    ):
        client.ping()


def test_a_training_without_a_change_is_told(lab):
    folders, probe = lab
    unchanged = Probe(prompts=PROMPTS, trained=probe.base, base=probe.base)
    with endpoint({"adapter": folders["base"]}, unchanged) as client:
        assert "the adapter changes nothing" in client.ping()


@pytest.fixture
def shared_cache(monkeypatch):
    """Mix the prefix caches of all models: a prompt has the keys and values of the model that read it first."""
    first, prefill = {}, Engine._prefill

    def mixed(self, prompts):
        prefill(self, prompts)
        for prompt in prompts:
            owner = first.setdefault(prompt[:-1], self)
            if owner is not self:  # the last token is computed, the rest is taken from the cache
                _, theirs = owner._model.prefill(np.array([prompt[:-1]]))
                table = SequenceTable(self.checkpoint.config)
                table.reserve(1, len(prompt), 1)
                table.cache[:, 0, :, :, : len(prompt) - 1] = theirs[:, 0]
                position = np.array([len(prompt) - 1])
                logits = self._model.decode(np.array(prompt[-1:]), position, table.cache[:, :1])
                self._prefilled[prompt] = (logits[0], table.cache[:, 0, :, :, : len(prompt)])

    monkeypatch.setattr(Engine, "_prefill", mixed)


@pytest.mark.parametrize("writer", ["base", "other"])
@pytest.mark.usefixtures("shared_cache")
def test_the_prefix_cache_of_another_model_is_found(lab, writer):
    folders, probe = lab
    served = {"adapter": folders["trained"], writer: folders[writer]}
    with (
        endpoint(served, probe, base_model=writer) as client,
        pytest.raises(PolicyUnavailableError, match="another adapter's prefix cache"),
    ):
        client.ping()


def test_an_endpoint_without_log_probabilities_is_not_verified(lab):
    assert verify(lab[1], "adapter", [], lambda _: {"choices": [{"text": "w1", "logprobs": None}]}) is None
    assert verify(lab[1], "adapter", [], lambda _: None) is None


def test_noise_of_bfloat16_raises_no_alarm(lab):
    _, probe = lab
    rng = np.random.default_rng(0)
    for _ in range(200):
        noisy = tuple(
            tuple({t: v + rng.normal(0, 0.08) for t, v in list(each.items())[:5]} for each in positions)
            for positions in probe.trained
        )
        assert judged(probe, noisy).verdict is Verdict.OK
        assert max(judged(probe, noisy).trained) < TOLERANCE
    assert replace(judged(probe, probe.base)).verdict is Verdict.BASE


def test_an_address_is_verified_without_a_service(lab, tmp_path):
    folders, probe = lab
    folder = tmp_path / "trained"
    shutil.copytree(folders["trained"], folder)
    runner = CliRunner()

    def say(*arguments):
        with serve_app(create_app({"trained": folders["trained"], "again": folders["older"]})) as url:
            done = runner.invoke(app, ["policies", "verify", f"{url}/v1", *arguments])
        return done.exit_code, done.output

    write_manifest(folder, Manifest(task="maze", method="vpo", codec="maze", max_tokens=8, seed=0, steps=1))
    assert "stores no log-probabilities" in say("--checkpoint", str(folder))[1]
    write_manifest(folder, read_manifest(folder).model_copy(update={"probe": probe}))
    assert "--checkpoint DIR" in say()[1]
    code, said = say("--checkpoint", str(folder))
    assert (code, "answers with the trained weights" in " ".join(said.split())) == (0, True)
    assert '"verdict": "ok"' in say("--checkpoint", str(folder), "--json")[1]
    assert say("--checkpoint", str(folder), "--model", "again")[0] != 0
    shutil.copytree(folder, tmp_path / "mine")
    words = "it serves trained, again, not 'mine'. Pass the name it has there (--model NAME; "
    assert words in " ".join(say("--checkpoint", str(tmp_path / "mine"))[1].split())
