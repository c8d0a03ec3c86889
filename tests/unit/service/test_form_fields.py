"""Form fields derive from models and read back what they show."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from service.dashboard.fields import build_fields, form_values, read_values
from speciate.domain.budget import Budget
from speciate.domain.campaign import Campaign
from speciate.domain.learning import Learning
from speciate.domain.run import RunSpec
from tests.unit.cli.test_model_options import leaves


@pytest.mark.parametrize("model", [RunSpec, Campaign])
def test_every_option_is_a_form_field_with_its_documentation(model: type[BaseModel]) -> None:
    fields = {field.name: field for field in build_fields(model, "", {})}
    assert fields.keys() == {path for path, _ in leaves(model)}
    assert all(field.note for field in fields.values())
    # The fields show what an API client leaves out, and sending them back changes nothing.
    assert read_values(model, "", {name: field.value for name, field in fields.items()}) == {}


def test_optional_parts_of_a_run_are_left_out_while_their_first_field_is_empty() -> None:
    assert read_values(RunSpec, "", {"guidance.every": "", "guidance.most": "2", "learning.groups": "3"}) == {}
    given = {"guidance.every": "8", "guidance.most": "2", "learning.estimator": "vpo", "seed": "", "lanes": "x"}
    part = {"guidance": {"every": 8, "most": 2}, "learning": {"estimator": "vpo"}}
    assert read_values(RunSpec, "", given) == {**part, "lanes": "x"}


def test_a_spec_as_form_values_is_read_back() -> None:
    spec = RunSpec(budget=Budget(evaluations=5), seed=3, reuse_results=True, learning=Learning(kl=0.5))
    values = form_values(spec.model_dump(mode="json", exclude_none=True))
    assert RunSpec.model_validate(read_values(RunSpec, "", values)) == spec
