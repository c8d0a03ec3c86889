"""The templates that prompts are made from, and that a problem may bring its own of."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import StringConstraints

TemplateText = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]


class TemplateName(StrEnum):
    """Which part of a prompt a template is for."""

    SYSTEM = "system"
    """Who the policy is and how it must answer: the same for a whole run."""
    PROPOSE = "propose"
    """What is shown when nothing is to be changed."""
    CHANGE = "change"
    """What is shown with a program to change."""
    PROPOSE_REQUESTS = "propose_requests"
    """One request for a first program on each line; one of them is drawn for each prompt."""
    CHANGE_REQUESTS = "change_requests"
    """One request for a change on each line; one of them is drawn for each prompt."""
    GUIDANCE = "guidance"
    """What is shown where the policy is asked for advice, in runs that write some."""
