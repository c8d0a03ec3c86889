"""Prometheus rules and the Grafana dashboard use existing metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.topology.compose import ROOT
from service.metrics import InstallationCollector, ServiceMetrics
from speciate.storage.metrics import counters
from speciate.storage.metrics.counters import FAMILIES, WorkerCounters
from speciate.storage.stores import Stores

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
CONFIG = ROOT / "deploy" / "prometheus" / "prometheus.yml"
PAGE = ROOT / "docs" / "howto" / "monitor.md"
DASHBOARD = ROOT / "deploy" / "grafana" / "speciate.json"
_METRIC = re.compile(r"\b(?:speciate|process)_[a-z_]+")


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def _targets() -> Iterator[dict[str, str]]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from panel.get("targets", ())


@pytest.mark.servers
def test_queried_metrics_are_exported_and_exported_metrics_are_shown(stores: Stores) -> None:
    counting = WorkerCounters(stores.redis)
    for family in FAMILIES:
        labels = tuple("x" for _ in family.labels)
        if family.buckets:
            counting.observe(family, *labels, values=[0.2])
        else:
            counting.add(family, *labels)
    counting.close()
    with stores.engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO reconciler (id, alive_at) VALUES (1, now())")
    metrics = ServiceMetrics()
    metrics.record("GET", "/v1/runs", 200, 0.01)
    url = stores.engine.url.render_as_string(hide_password=False)
    installation = InstallationCollector(stores, url, stall_s=900, streams=lambda: 0)
    metrics.watch(installation)
    text = metrics.text().decode()
    metrics.forget(installation)

    exported = set(re.findall(r"^([a-z_]+)(?:\{| )", text, flags=re.MULTILINE))
    exported |= set(re.findall(r"^# TYPE ([a-z_]+) ", text, flags=re.MULTILINE))  # families without a series yet
    asked = {name for each in _targets() for name in _METRIC.findall(each["expr"])}
    asked_by_rules = {name for rule in _rules() for name in _METRIC.findall(rule["expr"])}
    assert asked
    assert asked_by_rules
    assert (asked | asked_by_rules) - exported == set()
    ours = set(re.findall(r"^# TYPE (speciate_[a-z_]+) ", text, flags=re.MULTILINE))
    assert {name for name in ours if not any(each.startswith(name) for each in asked)} == set()
    assert counters.EVALUATIONS.name + "_total" in exported


def test_documented_scrape_job_is_the_one_that_rules_ask_for() -> None:
    (documented,) = re.findall(r"^```yaml\n(.+?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for text in (documented, CONFIG.read_text()):
        (job,) = yaml.safe_load(text)["scrape_configs"]
        assert f'up{{job="{job["job_name"]}"}}' in RULES.read_text()
        assert job["authorization"]["credentials_file"]


def test_alerts_have_a_remedy() -> None:
    rules = _rules()
    assert len(rules) == len({rule["alert"] for rule in rules}) >= 8
    for rule in rules:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["remedy"]


def test_panels_have_names_units_and_no_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["title"]
        assert at["x"] + at["w"] <= 24
        assert panel["type"] == "row" or panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)")
def test_promtool_accepts_rules_configuration_and_queries(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    (tmp_path / "metrics_token").write_text("x")
    config = tmp_path / "prometheus.yml"
    config.write_text(CONFIG.read_text().replace("/run/secrets/metrics_token", str(tmp_path / "metrics_token")))
    asked = [each["expr"].replace("$__rate_interval", "1m") for each in _targets()]
    queries = [{"record": f"q{i}", "expr": query} for i, query in enumerate(asked)]
    recorded = tmp_path / "queries.yml"
    recorded.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": queries}]}))
    for command in (["check", "config", config], ["check", "rules", recorded]):
        result = subprocess.run(["promtool", *command], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
    cases = tmp_path / "cases.yml"
    cases.write_text((ROOT / "tests" / "deploy" / "alerts.yml").read_text())
    result = subprocess.run(["promtool", "test", "rules", cases], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
