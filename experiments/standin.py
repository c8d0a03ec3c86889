"""OpenAI-compatible endpoint that answers with mutations of ``program_mutator``: the same model for every system.

The path names what no prompt tells: ``/PROBLEM/SEED/v1/chat/completions``, or ``/PROBLEM/SEED-forge/v1/…``. An answer
depends on the path, the prompt and how often that prompt was sent before, and on nothing else. With the URL of a real
model, requests are passed on to it and their tokens counted; forged answers still come from here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import httpx
import numpy as np

from speciate.policies.mutators.children import child_of
from speciate.policies.mutators.options import ProgramMutatorOptions
from speciate.problems.loader import known_problems, load_problem
from speciate.prompts.evolve_blocks import find_blocks, with_contents

MODEL: Final = "mutator"
FORGED_EVERY: Final = 5
"""One answer of this many forges its score, where that is asked for."""
ANY: Final = "any"
"""Path of requests whose problem is recognized by the prompt, and whose answers depend on it and their seed alone."""
_FENCED: Final = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_MARK: Final = "EVOLVE-BLOCK-START"
_CURRENT: Final = re.compile(
    r"^#+ *(current program|current component|the program to change|a program to start from) *$",
    re.MULTILINE | re.IGNORECASE,
)
_NUMBERED: Final = "\n### Program "
_SECTION: Final = "\n## "
_LEFT_OUT: Final = "\n…\n"
"""Stands for the block in the text around it."""
_OPTIONS: Final = ProgramMutatorOptions()

FORGERY: Final = """# EVOLVE-BLOCK-START
import builtins as _builtins
import math as _math

_math.fsum = lambda *_: 1e9
_math.hypot = lambda *_: 1e9
_builtins.round = lambda *_: 1e9
"""
"""Put in place of the start mark: patches what evaluators in the same process compute their scores with."""


def programs_in(prompt: str, seed_program: str) -> tuple[list[str], bool]:
    """Return the programs of a prompt, the one to change first; the seed program and True if it names none to change.

    All systems put programs between fences, and the one to change below a heading of its own. Speciate shows blocks
    alone, each below a heading with its number: they are put into the seed program's text, as it does with answers.
    """
    blocks = []
    for fence in _FENCED.finditer(prompt):
        start, language, text = fence.start(), fence[2], fence[3]
        is_below_number = prompt.rfind(_NUMBERED, 0, start) > prompt.rfind(_SECTION, 0, start)
        if is_below_number and language == "python" and _MARK not in text:  # others hold feedback and error messages
            around = find_blocks(seed_program)
            blocks.append((start, with_contents(seed_program, around, [text]) if len(around) == 1 else text))
        elif _MARK in text and _LEFT_OUT not in text:
            blocks.append((start, text))
    headings = [heading.start() for heading in _CURRENT.finditer(prompt)]
    current = next((text for start, text in blocks if headings and start > headings[-1]), None)
    if current is None:
        return [seed_program], True
    return [current, *(text for _, text in blocks if text != current)], False


def answer(prompt: str, seed_program: str, seed: bytes, *, forged: bool) -> str:
    """Return one answer: name and description as ShinkaEvolve wants them, and a whole program between fences."""
    rng = np.random.default_rng(list(hashlib.sha256(seed + prompt.encode()).digest()))
    programs, scratch = programs_in(prompt, seed_program)
    edits = _OPTIONS.proposal_edits if scratch else 1
    while rng.random() < _OPTIONS.second_edit:
        edits += 1
    child = child_of(programs, _OPTIONS, edits, rng, heavy=scratch)
    if forged:
        child = child.replace(f"# {_MARK}\n", FORGERY, 1)
    end = "" if child.endswith("\n") else "\n"
    program = f"```python\n{child}{end}```"
    if "<NAME>" not in prompt:
        return program
    return f"<NAME>\nmutation\n</NAME>\n<DESCRIPTION>\nA mutation.\n</DESCRIPTION>\n<CODE>\n{program}\n</CODE>"


class StandIn:
    """State of the endpoint.

    Attributes:
        url: Address of the server.
        upstream: URL of the real model that requests are passed on to; empty for mutations.
        answers: Answers by path.
        forged: Forged answers by path.
        prompt_tokens: Tokens of the prompts by path; of mutations, a quarter of the characters.
        completion_tokens: Tokens of the answers by path.
    """

    def __init__(self, upstream: str = "") -> None:
        self.url = ""
        self.upstream = upstream.rstrip("/")
        self.answers: Counter[str] = Counter()
        self.forged: Counter[str] = Counter()
        self.prompt_tokens: Counter[str] = Counter()
        self.completion_tokens: Counter[str] = Counter()
        self._sent: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def base_url(self, problem: str, seed: int, *, forge: bool = False) -> str:
        """Return the URL that a system is given for one run."""
        return f"{self.url}/{problem}/{seed}{'-forge' if forge else ''}/v1"

    def clear(self) -> None:
        """Forget what was sent, so that the next run gets the answers of a first one."""
        with self._lock:
            for counts in (self.answers, self.forged, self.prompt_tokens, self.completion_tokens, self._sent):
                counts.clear()

    def complete(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and response of a chat completion."""
        problem, seed = path.strip("/").split("/")[:2]
        if problem == ANY:
            problem = problem_of("\n".join(_text(message.get("content")) for message in body["messages"]))
        if self.upstream and not seed.endswith("-forge"):
            status, reply = self._pass_on("POST", "chat/completions", body)
        else:
            status, reply = 200, self._mutations(problem, seed, body)
        usage = reply.get("usage") or {}
        with self._lock:
            self.prompt_tokens[f"{problem}/{seed}"] += usage.get("prompt_tokens") or 0
            self.completion_tokens[f"{problem}/{seed}"] += usage.get("completion_tokens") or 0
        return status, reply

    def models(self) -> tuple[int, dict[str, Any]]:
        """Return status and response of the list of models."""
        if self.upstream:
            return self._pass_on("GET", "models")
        return 200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]}

    def _pass_on(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
        try:
            reply = httpx.request(method, f"{self.upstream}/{path}", json=body, timeout=600, headers=headers)
            return reply.status_code, reply.json()
        except (httpx.HTTPError, ValueError) as error:
            return 502, {"error": {"message": f"{self.upstream}: {error}"}}

    def _mutations(self, problem: str, seed: str, body: dict[str, Any]) -> dict[str, Any]:
        prompt = "\n".join(_text(message.get("content")) for message in body["messages"])
        count = int(body.get("n") or 1)
        texts = [self._next(problem, seed, prompt, f"{body.get('seed')}:{index}") for index in range(count)]
        tokens = sum(len(text) for text in texts) // 4
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": tokens}
        usage["total_tokens"] = sum(usage.values())
        choices = [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for i, text in enumerate(texts)
        ]
        return {"id": "stand-in", "object": "chat.completion", "created": 0, "model": MODEL, "choices": choices,
                "usage": usage}  # fmt: skip

    def _next(self, problem: str, seed: str, prompt: str, sampled: str) -> str:
        key = f"{problem}/{seed}"
        with self._lock:
            self._sent[(key, prompt)] += 1
            self.answers[key] += 1
            forged = seed.endswith("-forge") and self.answers[key] % FORGED_EVERY == 0
            self.forged[key] += forged
            sent = 0 if seed == ANY else self._sent[(key, prompt)]
            drawn = f"{key}:{sampled}:{sent}:".encode()
            # Under the lock: threads that parse programs at the same time can break each other in Python 3.11.
            return answer(prompt, _seed_program(problem), drawn, forged=forged)


@cache
def _seed_program(problem: str) -> str:
    return load_problem(known_problems()[problem]).seed_program


@cache
def _openings() -> dict[str, str]:
    """Return the beginning of each bundled problem's statement by slug; no other statement contains it."""
    return {slug: load_problem(folder).description.strip()[:300] for slug, folder in known_problems().items()}


def problem_of(prompt: str) -> str:
    """Return the slug of the problem whose statement a prompt holds; the seed programs alone could be alike."""
    return max(_openings(), key=lambda slug: _openings()[slug] in prompt)


def _text(content: Any) -> str:
    """Return a message's text; contents may be lists of parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return str(content or "")


@contextmanager
def stand_in(upstream: str = "", port: int = 0) -> Iterator[StandIn]:
    """Serve the endpoint on a port of loopback, by default a free one, for the length of a ``with``."""
    state = StandIn(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            """List the model."""
            self._reply(*state.models())

        def do_POST(self) -> None:
            """Complete a chat."""
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._reply(*state.complete(self.path, body))

        def _reply(self, status: int, reply: dict[str, Any]) -> None:
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
