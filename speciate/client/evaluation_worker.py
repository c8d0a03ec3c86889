"""Evaluate leased candidates with a function, until there are no more or the worker is stopped."""

import math
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from speciate.client.sync.client import Client
from speciate.domain.candidate import MAX_FEEDBACK, MAX_TEXT, MAX_TEXTS, REFUSED_REWARDS, Failure, FailureKind
from speciate.domain.errors import InvalidInputError, PolicyUnavailableError, SpeciateError, UnavailableError
from speciate.domain.values import identifier_of, storable
from speciate.prompts.text import bounded
from speciate.schema.evaluations import Acceptance, LeasedEvaluation, SubmittedEvaluation

T = TypeVar("T")

_MAX_DELAY_S: Final = 30.0
_MAX_DETAIL: Final = 8000
_MAX_NAME, _MAX_REMARK = 80, 1000
_MOST_BROKEN: Final = 5
_OF_EVALUATOR: Final = ("exit_status", "no_json", REFUSED_REWARDS)
_PACKAGE: Final = f"{Path(__file__).parents[1]}/"


class CandidateFailedError(Exception):
    """Raise it in an evaluation function to report that a candidate has no rewards.

    Attributes:
        kind: Class of failure.
        detail: Text for people and prompts.
        reason: Short machine-readable reason, counted per run. The service's own, such as ``worker_lost``, become
            ``external``.
    """

    def __init__(self, detail: str, *, kind: FailureKind | str = FailureKind.CRASHED, reason: str = "external") -> None:
        super().__init__(detail)
        self.kind, self.detail, self.reason = FailureKind(kind), detail, reason


class BrokenEvaluatorError(SpeciateError, slug="broken-evaluator", title="The evaluator does not work"):
    """Raise it in an evaluation function to give the candidate back and stop the worker: the evaluator is at fault."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """Result of an evaluation function that also gives feedback."""

    rewards: Mapping[str, float | None]
    """Rewards by objective, in the author's units. A record that is None or not finite is not measured."""
    feedback: Mapping[str, str] = field(default_factory=dict)
    """Named texts that later prompts show: the first 16. Names become identifiers, and long texts are cut."""


Evaluate = Callable[[LeasedEvaluation], Mapping[str, float | None] | Rewards]
Report = Callable[[LeasedEvaluation, Mapping[str, Any], SubmittedEvaluation], None]


@dataclass
class EvaluationWorker:
    """Leases candidates, evaluates them in threads, keeps their leases and submits the results.

    If the function raises for the seed program or each of the first five candidates, or its rewards are refused, the
    evaluator is broken: this raises ``BrokenEvaluatorError``. A function that raises later fails the candidate, as
    ``CandidateFailedError`` always does. While the service is unavailable, the worker retries.
    """

    client: Client
    """Client of the service; a token with scope ``evaluate`` suffices."""
    function: Evaluate
    """Returns the rewards of a candidate; it runs in several threads if there are several slots."""
    problem: str | UUID | None = None
    """Limit to a problem version, by id or name."""
    run: str | UUID | None = None
    capabilities: Iterable[str] = ()
    """What this machine offers."""
    slots: int = 1
    """Candidates evaluated at the same time."""
    lease_s: float = 60.0
    """Seconds after which the service offers the candidates of a silent worker to others."""
    wait_s: float = 10.0
    """Seconds that a request waits for a candidate, and so the longest delay of a stop."""
    report: Report = lambda *_: None
    """Receives each candidate with its result and what became of it."""
    on_idle: Callable[[], None] = lambda: None
    """Called whenever no candidate arrived for some seconds."""
    worked: bool = False
    """True once a candidate was scored: refused rewards are then the fault of candidates."""
    stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _held: dict[UUID, LeasedEvaluation] = field(default_factory=dict, init=False)
    _lost: set[UUID] = field(default_factory=set, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _free: threading.Semaphore = field(init=False)
    _error: BaseException | None = field(default=None, init=False)
    _broken: int = field(default=0, init=False)
    _idle_since: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if self.slots < 1 or self.lease_s < 1:
            raise InvalidInputError("slots and lease_s must be at least 1.")
        self._free = threading.Semaphore(self.slots)

    def run_until(self, *, most: int | None = None, idle_s: float | None = None) -> int:
        """Evaluate candidates and return their number; once, a worker that has ended evaluates no more.

        End after ``most``, or after ``idle_s`` seconds without a candidate; None waits until ``stop``. Raises a
        ``SpeciateError`` if the service refuses the requests of this worker, or the evaluator does not work.
        """
        beat = threading.Thread(target=self._beat, name="evaluation-leases", daemon=True)
        beat.start()
        done = 0
        try:
            with ThreadPoolExecutor(self.slots, thread_name_prefix="evaluation") as pool:
                self._idle_since = time.monotonic()
                while not self.stopping.is_set() and (most is None or done < most):
                    if not self._free.acquire(timeout=1.0):
                        continue
                    lease = self._acquire(idle_s)
                    if lease is None:
                        self._free.release()
                        self.on_idle()
                        if idle_s is not None and not self._held and time.monotonic() - self._idle_since >= idle_s:
                            break
                        continue
                    done += 1
                    pool.submit(self._evaluate, lease).add_done_callback(self._ended)
                while self._held and not self.stopping.wait(0.1):
                    pass
                if self.stopping.is_set():
                    self._renew(0)
        finally:
            self.stopping.set()
            beat.join()
        if self._error is not None:
            raise self._error
        return done

    def stop(self) -> None:
        """End soon: candidates under evaluation are given back, and their results do not count."""
        self.stopping.set()

    def gave_up(self, candidate: LeasedEvaluation) -> bool:
        """Return True if a result would not count: the worker stops, or the service ended the lease."""
        return self.stopping.is_set() or candidate.lease in self._lost

    def _acquire(self, idle_s: float | None) -> LeasedEvaluation | None:
        left = self.wait_s if idle_s is None else idle_s - (time.monotonic() - self._idle_since)
        left = max(left, 1.0) if self._held else left
        acquire = partial(
            self.client.evaluations.acquire, problem=self.problem, run=self.run, capabilities=self.capabilities,
            wait_s=min(self.wait_s, max(0.0, left)), lease_s=self.lease_s,
        )  # fmt: skip
        leases = retried(acquire, self.stopping, within_s=math.inf if idle_s is None else left)
        if not leases:
            return None
        with self._lock:
            self._held[leases[0].lease] = leases[0]
        return leases[0]

    def _ended(self, future: Future[None]) -> None:
        """Stop on an error that no further candidate would avoid: a revoked token, a defect."""
        if (error := future.exception()) is not None:
            self._error = self._error or error
            self.stopping.set()

    def _evaluate(self, candidate: LeasedEvaluation) -> None:
        try:
            result, raised = self._result(candidate)
            if self.gave_up(candidate):  # the function may have been interrupted
                with suppress(UnavailableError):  # its lease lapses, unless it was given back already
                    self.client.evaluations.renew([candidate], lease_s=0)
                return
            self._raise_if_broken(candidate, result, raised)
            outcome = self._submit(candidate, result)
            if outcome is not None and outcome.status is Acceptance.REFUSED:
                # The candidate would wait for its lease to lapse, and then for the same evaluation.
                result = _failure(FailureKind.INVALID_OUTPUT, REFUSED_REWARDS, outcome.reason)
                self._raise_if_broken(candidate, result)
                outcome = self._submit(candidate, result)
            self.worked |= outcome is not None and result.get("rewards") is not None
            if outcome is not None:
                self.report(candidate, result, outcome)
        except BrokenEvaluatorError:
            with suppress(UnavailableError):  # its lease lapses
                if self.client.evaluations.renew([candidate], lease_s=0)[0].lease_until is None:
                    return  # another evaluator has it, or its run ended: that was the refusal
            raise
        finally:
            self._idle_since = time.monotonic()
            with self._lock:
                self._held.pop(candidate.lease, None)
            self._free.release()

    def _raise_if_broken(
        self, candidate: LeasedEvaluation, result: Mapping[str, Any], raised: BaseException | None = None
    ) -> None:
        failure = result.get("failure", {"reason": ""})
        self.worked |= failure["reason"] in ("reported", "external")
        if raised is None and failure["reason"] not in _OF_EVALUATOR:
            return
        self._broken += 1
        if candidate.number == 1 or (not self.worked and self._broken >= _MOST_BROKEN):
            which = "the seed program" if candidate.number == 1 else f"each of the first {self._broken} candidates"
            detail = failure["detail"].strip() if raised is None else located(raised)
            report = 'report {"failure": "…"}' if raised is None else "raise CandidateFailedError"
            raise BrokenEvaluatorError(
                f"the evaluator fails for {which} of {candidate.problem}: {detail.removesuffix('.')}.",
                remedy=f"Nothing was recorded for this one. Repair it, or {report} for a bad candidate.",
            ) from raised

    def _result(self, candidate: LeasedEvaluation) -> tuple[dict[str, Any], BaseException | None]:
        """Return the result of a candidate, and what the function raised."""
        started, raised = time.monotonic(), None
        try:
            rewards = self._rewards(candidate)
            numbers = {name: _finite(value) for name, value in rewards.rewards.items()}
            result: dict[str, Any] = {"rewards": numbers, "feedback": _feedback(rewards.feedback)}
        except BrokenEvaluatorError:
            raise
        except CandidateFailedError as error:
            reason = identifier_of(error.reason)[:_MAX_NAME]
            reserved = Failure(error.kind, reason).reserved  # the service would refuse it
            result = _failure(error.kind, "external" if reserved else reason, error.detail)
        except BaseException as error:  # noqa: BLE001 - of its candidate, too: Ctrl-C reaches the main thread only
            raised = error
            result = _failure(FailureKind.CRASHED, "raised", _said(error))
        return result | {"wall_s": time.monotonic() - started}, raised

    def _rewards(self, candidate: LeasedEvaluation) -> Rewards:
        answer = self.function(candidate)
        rewards = answer if isinstance(answer, Rewards) else Rewards(answer)
        if not isinstance(rewards.rewards, Mapping):
            name = getattr(self.function, "__name__", "the function")
            raise TypeError(f"{name}() returned {rewards.rewards!r:.80}, no rewards by objective")
        return rewards

    def _submit(self, candidate: LeasedEvaluation, result: Mapping[str, Any]) -> SubmittedEvaluation | None:
        """Submit a result; None if the worker stops before the service is available."""
        body = {"id": str(candidate.id), "lease": str(candidate.lease), **result}
        try:
            results = retried(lambda: self.client.evaluations.submit_all([body]), self.stopping)
        except InvalidInputError as error:  # a reward that is a text, feedback that is too long
            return SubmittedEvaluation(id=candidate.id, status=Acceptance.REFUSED, reason=str(error))
        return results[0] if results else None

    def _beat(self) -> None:
        while not self.stopping.wait(self.lease_s / 3):
            self._renew(self.lease_s)

    def _renew(self, lease_s: float) -> None:
        """Renew all leases, or give the candidates back with 0 seconds."""
        with self._lock:
            leases = [*self._held.values()]
        with suppress(SpeciateError):  # the next beat tries again, or the leases lapse
            renewed = self.client.evaluations.renew(leases, lease_s=lease_s)
            self._lost |= {lease.lease for lease, now in zip(leases, renewed, strict=True) if now.lease_until is None}


def located(error: BaseException) -> str:
    """Return type, message and place of an exception; the place is the innermost one outside of this package."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(_PACKAGE)]
    places = [f" ({each.filename}:{each.lineno})" for each in frames if "concurrent" not in each.filename]
    return f"{_said(error)}{''.join(places[-1:])}"


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - of a program, which may define it
        return type(error).__name__


def retried(call: Callable[[], T], stopping: threading.Event, *, within_s: float = math.inf) -> T | None:
    """Call the service, again while it is unavailable; None if ``stopping`` is set or the time is over before.

    A policy that is unavailable is another matter: its error is raised.
    """
    delay_s, deadline = 0.5, time.monotonic() + within_s
    while True:
        try:
            return call()
        except PolicyUnavailableError:
            raise
        except UnavailableError as error:
            left = max(0.0, deadline - time.monotonic())
            if stopping.wait(min(left, max(delay_s, error.retry_after_s))) or left == 0.0:
                return None
            delay_s = min(2 * delay_s, _MAX_DELAY_S)


def _finite(value: Any) -> float | str | None:
    """Return a reward as JSON has it: null for NaN, an infinity or a whole number beyond float."""
    try:
        if value is None or not math.isfinite(value):
            return None
        return value if isinstance(value, int) else float(value)  # of an array library, too
    except OverflowError:
        return None
    except TypeError:
        return str(value)  # no number: the service refuses it by its name


def _failure(kind: FailureKind, reason: str, detail: str) -> dict[str, Any]:
    return {"failure": {"kind": kind.value, "reason": reason, "detail": storable(detail)[-_MAX_DETAIL:]}}


def _feedback(notes: Mapping[str, str]) -> dict[str, str]:
    """Return notes within the limits of the service. A note whose name changes, or the last of too many, says so."""
    texts: dict[str, str] = {}
    for name, note in notes.items():
        label = identifier_of(str(name))[:_MAX_NAME]
        text = storable(str(note) if label == name else f"{name}: {note}")
        texts[label] = f"{texts[label]}\n{text}" if label in texts else text
    kept, more = [*texts][:MAX_TEXTS], [*texts][MAX_TEXTS:]
    if more:
        texts[kept[-1]] += f"\n… {len(more)} more notes are left out: {', '.join(more)}"[:_MAX_REMARK]
    limit = MAX_TEXT if sum(len(texts[name]) for name in kept) <= MAX_FEEDBACK else MAX_FEEDBACK // MAX_TEXTS
    return {name: text if len(text := texts[name]) <= limit else bounded(text, limit - 100) for name in kept}
