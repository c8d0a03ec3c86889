"""Sample from a program on this machine, such as a coding agent: one process for each completion (ADR 63).

The program reads the prompt on standard input, in a new folder that holds the program to change. A file that it changes
is its answer, and what it prints first the idea; else its answer is what it prints.
"""

import json
import os
import re
import shlex
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pydantic import Field, field_validator

from speciate.domain.charge import Charge
from speciate.domain.errors import ForbiddenError, PolicyUnavailableError, SpeciateError
from speciate.domain.files import MODULE_FILE, PYTHON_MAIN, FilesError, text_of
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.rollout import REFUSED, Completion
from speciate.domain.values import MAX_PROGRAM_BYTES, Value
from speciate.policies.agent_output import AgentOutput, read_output
from speciate.policies.kind import PROMPTS, STANDALONE, ClientContext, PolicyKind, client_options
from speciate.policies.mutators.answers import shown
from speciate.policies.request_fields import joined, one_each
from speciate.ports.interruption import interrupted
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.prompts.state import words_of
from speciate.prompts.text import bounded, printable, prompt_tokens, token_bound
from speciate.subprocesses import KEPT_BYTES, CommandLimits, CommandResult, run_command

_PASSED: Final = re.compile(
    r"HOME|PATH|USER|LOGNAME|SHELL|LANG|TZ|LC_\w+|XDG_\w+|SSL_CERT_\w+|NODE_EXTRA_CA_CERTS|CLAUDE_CONFIG_DIR|CODEX_HOME"
)
"""Variables by which tools find their configuration, and the login in it; none of them is a secret."""
_SECRET: Final = re.compile(r"^--?[\w-]*(?:api-?key|secret|passw|(?:auth|access)-?token)|\bsk-[\w-]{16}", re.IGNORECASE)
_LIMITED: Final = re.compile(
    r"hit your .{0,30}limit|limit (?:reached|exceeded)|rate.?limit|too many requests|overloaded|quota|credit balance"
    r"|resource.?exhausted|billing|(?:error|status|http)\W.{0,20}\b(?:429|503|529)\b",
    re.IGNORECASE,
)
_LOGGED_OUT: Final = re.compile(
    r"\b(?:log|logged|sign) ?in\b|authenticat|unauthorized|api.?key|(?<!cached )credentials", re.IGNORECASE
)
_VERSIONED: Final = frozenset(
    {"aider", "amp", "claude", "codex", "cursor-agent", "gemini", "goose", "opencode", "qwen"}
)
"""Programs that are known to answer ``--version`` and do nothing else then."""
_VERSION_LIMITS: Final = CommandLimits(timeout_s=10.0, output_bytes=4000)
_MOST_MESSAGE: Final = 600
_MOST_NOTICE: Final = 500
"""A longer output is an answer; a line may be a notice, with which some agents end as if nothing had happened."""
_ANSWERED: Final = re.compile("\n|```|~~~|<answer")
_OVERHEAD_TOKENS: Final = 1000
_SHORTEST_KEY: Final = 8
_MOST_READ: Final = 8 * MAX_PROGRAM_BYTES


class CommandOptions(Value):
    command: str = Field(max_length=4000)
    """Program and arguments, in quotes where they hold spaces; no shell reads them."""
    concurrency: int = Field(default=2, ge=1, le=256)
    """Processes at the same time, in each process of the service."""
    max_output_bytes: int = Field(default=8 << 20, ge=1 << 10, le=KEPT_BYTES)
    """Most bytes that it may print."""
    max_folder_bytes: int = Field(default=256 << 20, ge=1 << 16, le=1 << 36)
    """Most bytes that it may write to its folder."""
    version: str | None = Field(default=None, max_length=200)
    """Version that the program reported at registration."""

    @field_validator("command")
    @classmethod
    def _is_command(cls, command: str) -> str:
        split_command(command)
        return command


def split_command(command: str) -> list[str]:
    """Return program and arguments; ``ValueError`` if there is no program, a quote is open, or a secret is in them."""
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{error}: expected a command such as 'claude -p'") from None
    if not arguments or not arguments[0]:
        raise ValueError("the command is empty: expected one such as 'claude -p'")
    if any(map(_SECRET.search, arguments)):
        raise ValueError(
            "an argument seems to be a secret, which others can read: expected a command that reads it from its"
            " configuration, or from a variable that agent_environment names"
        )
    return arguments


class CommandPolicy:
    """Client of a program. Threads may share one instance."""

    def __init__(self, policy: Policy, context: ClientContext = STANDALONE) -> None:
        self._policy, self._context = policy, context
        self._options = client_options(policy, CommandOptions)
        self._command = split_command(self._options.command)
        self._slots = threading.BoundedSemaphore(self._options.concurrency)

    def token_ceiling(self, request: SampleRequest) -> int:
        return request.n * (prompt_tokens(request.prompt) + _OVERHEAD_TOKENS + self._policy.tokens_for(request.role))

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Answer every request, in order; they run concurrently. Raises ``PolicyUnavailableError``."""
        split = [one_each(request) for request in requests]
        single = [one for each in split for one in each]
        stop = threading.Event()
        with ThreadPoolExecutor(max(1, min(len(single), self._options.concurrency)), "agent") as pool:
            # Each thread reads from the context whether the work is interrupted.
            futures = [pool.submit(copy_context().run, self._answer, request, stop) for request in single]
            wait(futures, return_when=FIRST_EXCEPTION)
            failed = next((error for each in futures if each.done() and (error := each.exception())), None)
            if failed is not None:
                stop.set()
                pool.shutdown(cancel_futures=True)
        if isinstance(failed, PolicyUnavailableError):
            failed.spent = sum((self._charge(each) for each in futures if not each.cancelled()), Charge())
        if failed is not None:
            raise failed
        answers = (future.result() for future in futures)
        return [joined([next(answers) for _ in each], self._policy.price) for each in split]

    def _charge(self, answer: Future[SampleResult]) -> Charge:
        error = answer.exception()
        if error is None:
            return answer.result().charge(self._policy.price)
        return error.spent if isinstance(error, PolicyUnavailableError) else Charge()

    def ping(self) -> str:
        version = self._version(self._located(ForbiddenError))
        return f"{self._command[0]} is on this machine{f', {version}' if version else ''}"

    def identify(self) -> Policy:
        version = self._version(self._located(ForbiddenError))
        more = {} if version is None else {"version": version}
        return self._policy.model_copy(update={"options": {**self._policy.options, **more}})

    def revalidate(self) -> None:
        """Do nothing: the program is looked up for each request."""

    def _located(self, refusal: type[SpeciateError] = PolicyUnavailableError) -> str:
        if not self._context.allows(self._command):
            allowing = f"SPECIATE_AGENT_COMMANDS={shlex.quote(json.dumps([self._options.command]))} speciate up"
            raise refusal(
                f"policy {self._policy.slug!r}: the operator does not allow the command {self._options.command!r}.",
                remedy=f"It runs outside the sandbox with the rights of API and workers. Start them with: {allowing}\n"
                "Or stop them and repeat your command: then it runs the agent itself.",
            )
        if (path := shutil.which(self._command[0])) is None:
            missing = f"there is no program {self._command[0]!r} on this machine"
            raise self._unavailable(missing, "Install it, or correct the command or PATH.")
        return str(Path(path).absolute())

    def _version(self, path: str) -> str | None:
        if Path(path).name not in _VERSIONED:
            return None
        with TemporaryDirectory(prefix="speciate-agent-") as name:
            result = run_command([path, "--version"], self._environment(name), _VERSION_LIMITS, directory=Path(name))
        return printable(result.output.strip().partition("\n")[0])[:100] or None if result.status == 0 else None

    def _answer(self, request: SampleRequest, stop: threading.Event) -> SampleResult:
        def unwanted() -> bool:
            return stop.is_set() or interrupted()

        while not self._slots.acquire(timeout=0.2):
            if unwanted():
                raise self._unavailable("the request was interrupted")
        started = time.monotonic()
        try:
            temporary = TemporaryDirectory(prefix="speciate-agent-", ignore_cleanup_errors=True)
            with suppress(RecursionError), temporary as name:  # nested too deep to be removed
                folder, options = Workspace(Path(name), request), self._options
                result = run_command(
                    [self._located(), *self._command[1:]],
                    self._environment(str(folder.temporary)),
                    CommandLimits(self._policy.timeout_s, options.max_output_bytes, options.max_folder_bytes),
                    directory=folder.path,
                    folder=folder.root,
                    text=f"{request.prompt.text()}\n\n{folder.note()}",
                    give_up=unwanted,
                )
                changed = self._without_keys(folder.answer() or "") or None
            if result.exceeded and unwanted():
                interruption = self._unavailable("the request was interrupted")
                interruption.spent = self._measured(request, read_output(result.output)).charge(self._policy.price)
                raise interruption
        except OSError as error:
            raise self._unavailable(f"{self._command[0]} cannot be started: {error.strerror or error}") from None
        finally:
            self._slots.release()
        return replace(self._read(request, result, changed), latency_s=time.monotonic() - started)

    def _read(self, request: SampleRequest, process: CommandResult, changed: str | None) -> SampleResult:
        process = replace(process, output=self._without_keys(process.output), errors=self._without_keys(process.errors))
        output = read_output(process.output)
        result = self._measured(request, output, process.exceeded)
        failure, printed = _failure(process, output), output.text.strip()
        is_notice = changed is None and output.plain and len(printed) < _MOST_NOTICE and not _ANSWERED.search(printed)
        said = printable(bounded(failure or (printed if is_notice else ""), _MOST_MESSAGE)).replace("\n", " ")
        limited, logged_out = _LIMITED.search(said), _LOGGED_OUT.search(said)
        if not process.exceeded and (limited or logged_out):  # other requests will fail, too
            remedy = "Wait until the limit is lifted, then resume the run; fewer lanes or a lower concurrency help."
            log_in = (
                f"Log in with {self._command[0]} as the user who runs it, or name the variable of its key in the"
                " setting agent_environment (SPECIATE_AGENT_ENVIRONMENT); then resume the run."
            )
            error = self._unavailable(said, remedy if limited else log_in)
            error.spent = result.charge(self._policy.price)
            raise error
        (completion,) = result.completions
        if changed is not None:
            completion = replace(completion, text=f"{words_of(printed).replace('`', '')}\n\n{changed}".lstrip())
        elif failure:
            advice = f"Run {self._command[0]} by hand with the prompt of this answer, or raise its limits."
            completion = replace(completion, text=f"{said}\n{advice}", finish_reason=REFUSED)
        return replace(result, completions=(completion,))

    def _measured(self, request: SampleRequest, output: AgentOutput, exceeded: str = "") -> SampleResult:
        """Return the output with its tokens, or a bound; those beyond the ceiling are reserved if the budget allows."""
        ceiling, reported = self.token_ceiling(request), output.prompt is not None
        prompt = output.prompt if output.prompt is not None else prompt_tokens(request.prompt)
        bound = ceiling if exceeded and not reported else token_bound(output.text)
        completion = output.completion if output.completion is not None else bound
        excess = prompt + completion - ceiling
        if excess > 0 and not (reported and request.reserve(excess)):
            prompt = min(prompt, ceiling)
            completion = min(completion, ceiling - prompt)
        estimated = 0 if reported else prompt + completion
        return SampleResult((Completion(output.text, completion),), prompt, 0.0, estimated, output.cost)

    def _environment(self, temporary: str) -> dict[str, str]:
        passed = [name for name in os.environ if _PASSED.fullmatch(name) or name in self._context.variables]
        return {name: os.environ[name] for name in passed} | {"TMPDIR": temporary, "TERM": "dumb", "NO_COLOR": "1"}

    def _without_keys(self, text: str) -> str:
        """Return what the program wrote without the keys that it was given: others can read candidates."""
        for name in self._context.variables:
            if len(value := os.environ.get(name, "")) >= _SHORTEST_KEY and not name.endswith("_URL"):
                text = text.replace(value, f"[{name}]")
        return text

    def _unavailable(self, message: str, remedy: str | None = None) -> PolicyUnavailableError:
        return PolicyUnavailableError(f"policy {self._policy.slug!r}: {message.rstrip('.')}.", remedy=remedy)


def _failure(process: CommandResult, output: AgentOutput) -> str:
    errors, text = process.errors.strip(), output.text.strip()
    if process.exceeded:
        return f"it {process.exceeded}"
    if process.status:
        ended = f"signal {-process.status}" if process.status < 0 else f"exit status {process.status}"
        return f"{ended}: {output.error or errors or text[-_MOST_MESSAGE:]}"
    return output.error or ("" if text else f"it printed nothing. {errors}")


class Workspace:
    """Folder of one process, with the program to change."""

    def __init__(self, root: Path, request: SampleRequest) -> None:
        self.root, self.path, self.temporary = root, root / "program", root / "tmp"
        self._problem: Problem | None = request.problem
        program = request.parents[0].program if request.parents else request.seed_program
        self._role = "change" if request.parents else "start from"
        self._before: Mapping[str, str] = {}
        if program:
            self._before = {PYTHON_MAIN: program} if self._problem is None else self._problem.files_in(program)
        self.temporary.mkdir()
        self.path.mkdir()
        for name, text in self._before.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "replace"))

    def note(self) -> str:
        if not self._before:
            return "Your working directory is empty. Print the answer; nobody can answer questions."
        names = ", ".join(self._before)
        return (
            f"The program to {self._role} is in your working directory: {names}. Either edit it there, and its final"
            " content is your answer, or print the answer as described above. Leave no other files behind. Nobody can"
            " answer questions."
        )

    def answer(self) -> str | None:
        problem = self._problem
        many, is_python = problem is not None and problem.many_files, problem is None or problem.is_python
        names = [*self._before, *(self._new_files(is_python) if many else ())]
        after = {name: text for name in names if (text := _text_of(self.path, name)) is not None}
        if after.items() <= self._before.items():
            return None
        if not many:
            return shown(after[names[0]], is_python=is_python)
        try:
            return shown(text_of({**self._before, **after}), is_python=False)
        except FilesError:  # of the new files
            return shown(text_of({name: after.get(name, text) for name, text in self._before.items()}), is_python=False)

    def _new_files(self, is_python: bool) -> Iterator[str]:
        with suppress(OSError, RecursionError):  # nested too deep
            for path in sorted(self.path.rglob("*")):
                place = path.relative_to(self.path)
                hidden = any(part.startswith((".", "__")) for part in place.parts[:-1])
                if not hidden and (not is_python or MODULE_FILE.fullmatch(place.as_posix())):
                    yield place.as_posix()


def _text_of(folder: Path, name: str) -> str | None:
    """Return the text of a regular file; a link could lead to any file of the user."""
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(_MOST_READ).decode()
    except (OSError, RuntimeError, UnicodeDecodeError):  # RuntimeError: a link to itself
        return None


_SUMMARY: Final = "a program on this machine that reads prompts, such as a coding agent"
KIND: Final = PolicyKind(CommandPolicy, CommandOptions, _SUMMARY, fields=PROMPTS)
