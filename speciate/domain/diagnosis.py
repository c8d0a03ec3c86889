"""Why a run cannot make progress: its evaluator is broken, or its policy's answers are unreadable or repeat."""

from enum import StrEnum
from typing import Final

from pydantic import Field

from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.rollout import ONLY_REASONING, REFUSED
from speciate.domain.values import Value, storable

MAX_DETAIL: Final = 4000
"""Characters of a failure's detail that a diagnosis keeps."""


REPEATED: Final = "repeated_answers"
"""Reason of a diagnosis: the policy gives answers that the run has already."""
NO_TEXT: Final = "no_text"
_PROTECTED: Final = "protected_region_changed"
TRUNCATED: Final = frozenset({"truncated", "truncated_thinking"})
"""Reasons of answers that reached the limit of tokens."""


FAILURES: Final = "failures"
OUTAGE: Final = "outage"
"""Alarms of a run that goes on: most candidates fail or repeat others; a policy is unavailable."""


def outage_message(policy: str, reason: str) -> str:
    """Return the message of an alarm about an unavailable policy; errors of policies begin with its name."""
    reason = reason.removeprefix(f"policy {policy!r}").lstrip(": ")
    return f"policy {policy!r} is unavailable, and others answer for it: {reason}"


def alarm_name(message: str | None) -> str | None:
    """Return what the alarm of a run is about by its message; None if there is none."""
    return message and (OUTAGE if message.startswith("policy ") else FAILURES)


class Fault(StrEnum):
    """Part that failed."""

    EVALUATOR = "evaluator"
    POLICY = "policy"


_REMEDIES: Final[dict[str, str]] = {
    "worker_lost": (
        "See the logs of the evaluate workers and the kernel log: the workers are killed, most likely for memory."
        " Give them more memory or fewer slots, then resume the run."
    ),
    REPEATED: (
        "Set a temperature above 0, check that the endpoint heeds `temperature`, `seed` and `n`, or use another model;"
        " then start a new run. `speciate runs resume RUN` goes on with this one."
    ),
    _PROTECTED: (
        "Compare the prompt, the completion and the reason. If the problem protects too much, move its EVOLVE-BLOCK"
        " markers, add it with `speciate problems add DIR` and start a new run; otherwise use another policy."
    ),
    **dict.fromkeys(
        TRUNCATED,
        "Raise max_tokens (`speciate evolve --max-tokens N`, `speciate policies add --sampling max_tokens=N`), or lower"
        " the model's reasoning effort; then start a new run.",
    ),
    Fault.EVALUATOR: (
        "If a package or file is missing on the workers, install it and resume the run. Otherwise fix the evaluator,"
        " test it with `speciate problems check DIR`, add it with `speciate problems add DIR`, and start a new run."
    ),
    Fault.POLICY: (
        "Compare the prompt, the completion and the reason. Then correct the policy (model, chat template, max_tokens,"
        " prompt format) or the problem's prompt templates, and resume the run or start a new one."
    ),
}

PROGRAMS_FAIL: Final = (
    "The evaluator has scored another program of this run, so most likely the new ones lack what it needs: name that,"
    " such as a function, in the problem's description or the evaluator's docstring, or use a stronger model, and start"
    " a new run. `speciate runs resume RUN` goes on with this one, for example if the evaluator lacked a file."
)
_SEED: Final = "the seed program could not be scored"
_UNREADABLE: Final = "no answer of the policy could be read"
_ANSWERS: Final = {
    REFUSED: "no prompt was accepted",
    **dict.fromkeys((ONLY_REASONING, NO_TEXT), "no answer of the policy came as text"),
    REPEATED: "the policy repeats its answers",
    _PROTECTED: "every answer of the policy changes protected text",
    **dict.fromkeys(TRUNCATED, "every answer of the policy is cut off at its limit of tokens"),
}
"""What is wrong with the answers of a policy, by the reason, if it is not that they cannot be read."""


_TITLES: Final = {
    REFUSED: "No prompt was accepted",
    REPEATED: "The answers repeat",
    _PROTECTED: "The answers change protected text",
    **dict.fromkeys(TRUNCATED, "The answers are cut off"),
}


class Diagnosis(Value):
    """Why the service paused a run."""

    fault: Fault
    """Part that failed."""
    reason: str
    """Reason of the latest failure, such as ``evaluator_raised`` or ``no_code_block``. Untrusted text."""
    detail: str = ""
    """Its detail, such as a traceback. Untrusted text."""
    candidate: int = Field(ge=1)
    """Number of the candidate with that failure."""
    failures: int = Field(ge=1)
    """Failures in a row."""
    remedy: str
    """What to do."""

    @classmethod
    def of(
        cls, fault: Fault, failure: Failure, candidate: int, failures: int, *, remedy: str | None = None
    ) -> "Diagnosis":
        """Return the diagnosis for the latest failure; ``remedy`` replaces the usual one."""
        return cls(
            fault=fault,
            reason=storable(failure.reason),
            detail=storable(failure.detail)[-MAX_DETAIL:],
            candidate=candidate,
            failures=failures,
            remedy=remedy or _REMEDIES.get(failure.reason, _REMEDIES[fault]),
        )

    @property
    def title(self) -> str:
        if self.fault is Fault.EVALUATOR:
            return "The evaluator failed"
        return "The programs fail" if self._programs_fail else _TITLES.get(self.reason, "The answers cannot be read")

    @property
    def finding(self) -> str:
        what = "no new program could be scored" if self._programs_fail else _ANSWERS.get(self.reason, _UNREADABLE)
        if self.fault is Fault.EVALUATOR:
            if self.failures == 1:  # only the seed program's failure is conclusive by itself
                return _SEED
            what = "no program could be scored"
        return f"{what} ({self.failures} in a row)"

    @property
    def _programs_fail(self) -> bool:
        return self.fault is Fault.POLICY and Failure(FailureKind.INVALID_OUTPUT, self.reason).by_evaluator

    @property
    def summary(self) -> str:
        """One line: what failed, how often, and the line of the detail that tells the error."""
        line = Failure(FailureKind.REJECTED, self.reason, self.detail).last_line
        cause = f"{self.reason}: {line}" if self.detail.strip() else self.reason
        if self.reason in {REFUSED, ONLY_REASONING, NO_TEXT, *TRUNCATED}:
            cause = f"{self.detail[:1000].rstrip('.')}. {self.remedy}"
        elif self.reason == REPEATED:
            cause = cause.removeprefix(f"{REPEATED}: ")
        return f"{self.finding}: {cause}"
