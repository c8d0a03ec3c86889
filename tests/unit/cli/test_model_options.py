"""The command line has every option that the models declare, with its documentation and default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from speciate.cli.app import app
from speciate.domain.budget import Budget
from speciate.domain.campaign import Campaign
from speciate.domain.documented import attribute_docs
from speciate.domain.learning import Learning
from speciate.domain.novelty import Novelty
from speciate.domain.run import RunSpec
from speciate.domain.values import Value
from tests.support.runs import EVERY_OPTION
from tests.unit.cli.conftest import Cli
from tests.unit.client.fake_service import RUN, FakeService, page, run_json, say, serve_best

WITHOUT_OPTION = {"novelty.shingle", "novelty.window", "guidance.most"}
"""Fields that only forms, files and the API set. Parts of ``learning`` are set by --learn-option."""
BY_HAND = {"slug", "problems", "policy", "mutator"}
"""Fields of a campaign that its command declares itself."""


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and documentation of every field; a nested model is replaced by its fields."""
    for name, field in model.model_fields.items():
        parts = [kind for kind in (field.annotation, *getattr(field.annotation, "__args__", ())) if _is_model(kind)]
        if parts:
            yield from leaves(parts[0], f"{name}.")
        else:
            yield prefix + name, attribute_docs(model)[name]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Value)


def parameters(*command: str) -> dict[str, Any]:
    """Return the parameters of a command by name."""
    group: Any = typer.main.get_command(app)
    for name in command:
        group = group.commands[name]
        group = getattr(group, "command", group)
    return {parameter.name: parameter for parameter in group.params}


COMMANDS = [(("run",), RunSpec), (("campaigns", "create"), Campaign)]


@pytest.mark.parametrize(("command", "model"), COMMANDS)
def test_every_field_is_an_option_with_its_documentation(command: tuple[str, ...], model: type[BaseModel]) -> None:
    options = parameters(*command)
    for path, documentation in leaves(model):
        by_key = path.removeprefix("learning.")
        if path not in WITHOUT_OPTION | BY_HAND and (path == by_key or by_key == "estimator"):
            assert options[path.replace(".", "_")].help.startswith(documentation.replace("``", "`").rstrip(".")), path
        elif path != by_key:
            assert by_key in options["learning"].help


@pytest.mark.parametrize(("command", "model"), COMMANDS)
def test_options_show_the_defaults_of_the_model(command: tuple[str, ...], model: type[BaseModel]) -> None:
    options = parameters(*command)
    names = ("strategy", "seed", "batch", "samples_per_prompt", "policy_choice", "lanes", "slice", "learning_scope")
    defaults = {name: str(model.model_fields[name].default) for name in names if name in model.model_fields}
    assert {name: options[name].show_default for name in defaults} == defaults
    assert not options["learning_estimator"].show_default


def test_a_run_shows_every_option_that_differs_from_its_default(cli: Cli, service: FakeService) -> None:
    changed = EVERY_OPTION.changed_options
    assert {re.sub("(_options).*", r"\1", path) for path in changed} == {path for path, _ in leaves(RunSpec)}
    some = RunSpec(budget=Budget(tokens=5), learning=Learning(), novelty=Novelty(window=9))
    assert some.changed_options == {"learning.estimator": "vector_max_at_k", "budget.tokens": 5, "novelty.window": 9}
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(spec=EVERY_OPTION.model_dump(mode="json"))))
    service.on("GET", f"/v1/runs/{RUN}/unlocks", page())
    serve_best(service)
    (line,) = (line for line in cli("runs", "show", RUN).lines if line.startswith("options "))
    learning = {path: value for path, value in changed.items() if path.startswith("learning.")}
    by_key = [f"--learn-option {path.partition('.')[2]}={learning[path]}" for path in [*learning][1:]]
    assert line.removeprefix("options").strip() == (
        "--strategy best_of_n --option population=45 --batch 46 --samples-per-prompt 47 --engine gepa"
        f" --engine-option 'merge <b>=x y' --choice ucb --seed 49 --learn entropic {' '.join(by_key)}"
        " --budget 41 --tokens 42 --seconds 43.5 --dollars 44.5 --discount 0.48 --lanes 51 --stop-on-unlock"
        " --stop-on-plateau 52 --reuse-results --final-evaluations 53 --keep-tokens --same text --reject-near 0.54"
        " novelty.shingle=9 novelty.window=55 --guidance 64 guidance.most=7"
    )
