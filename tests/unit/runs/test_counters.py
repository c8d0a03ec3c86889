"""The counters of a run: one declaration for the database, the record and what is displayed."""

from __future__ import annotations

from speciate.domain.documented import attribute_docs
from speciate.domain.run import Display, RunCounters
from speciate.runs.progress import RunProgress
from speciate.schema.runs import RunRecord


def test_every_counter_is_described_and_a_field_of_the_record() -> None:
    described = attribute_docs(RunCounters)
    for name in RunCounters.model_fields:
        assert name in described
        assert name in RunRecord.model_fields
        assert name in RunProgress.model_fields


def test_zero_is_displayed_unless_the_counter_is_optional() -> None:
    shown = {name: (display, value) for name, display, value in RunCounters(failed=2).displayed()}
    assert shown["failed"] == (Display("failed", share=True), 2)
    assert shown["duplicates"][1] == 0
    assert "reused" not in shown
    assert "reused" in {name for name, _, _ in RunCounters(reused=1).displayed()}
