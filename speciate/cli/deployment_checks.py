"""What ``speciate doctor`` asks a service, here or on another machine: whether all of it is there and gets on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from speciate import __version__
from speciate.cli.checks import Finding, Status, failed
from speciate.cli.secret_checks import of_service
from speciate.client import Client
from speciate.client.connection import Connection
from speciate.domain.errors import SpeciateError
from speciate.ports.records.runs import WorkerProcess
from speciate.ports.work import Queue
from speciate.settings import UNSAFE

MOST_SKEW_S: Final = 5.0
LONG_WAIT_S: Final = 300.0
SILENT_S: Final = 15.0
"""Seconds after which a reconciler that looks every second counts as gone."""


def deployment(url: str | None) -> Iterator[Finding]:
    """Look at the service, its servers, clock, workers, queues, runs and policies."""
    with Client(url) as client, httpx.Client(**Connection.to(url, None).options()) as http:
        try:
            ready = client.ready()
        except SpeciateError as error:
            yield failed("api", Status.WARNING, error)
            return
        yield _api(client.url, str(ready.get("version", "")))
        for server in ("postgresql", "redis"):
            if server in ready:
                yield Finding(server, Status.GOOD, f"the service's {server} answers ({ready[server]})")
        yield from _clock(http)
        try:
            yield from _inside(client, http)
        except SpeciateError as error:
            yield failed("access", Status.BAD, error)


def _inside(client: Client, http: httpx.Client) -> Iterator[Finding]:
    """Look at what only those may ask who have a token."""
    workers = client.workers()
    yield from _workers(workers)
    yield from _tiers(workers)
    yield from _work(http)
    for slug in sorted({policy.definition.slug for policy in client.policies.list()}):
        yield _policy(client, slug)


def _api(url: str, version: str) -> Finding:
    if version and version != __version__:
        detail = f"{url} is ready and runs Speciate {version}; this command is of {__version__}"
        return Finding("api", Status.WARNING, detail, "Install the same version here.")
    return Finding("api", Status.GOOD, f"{url} is ready")


def _clock(http: httpx.Client) -> Iterator[Finding]:
    before = time.time()
    answer = http.get("/healthz")
    middle = (before + time.time()) / 2
    if "date" not in answer.headers:
        return
    # The header has whole seconds, cut off.
    skew = parsedate_to_datetime(answer.headers["date"]).timestamp() + 0.5 - middle
    if abs(skew) > MOST_SKEW_S:
        detail = f"the service's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
        yield Finding("clock", Status.WARNING, detail, "Set both by NTP: expiry of tokens and logs go by it.")
    else:
        yield Finding("clock", Status.GOOD, "the service's clock agrees with this machine's")


def _workers(workers: tuple[WorkerProcess, ...]) -> Iterator[Finding]:
    for queue in Queue:
        serving = [worker for worker in workers if queue.value in worker.queues]
        name = f"queue {queue.value}"
        if serving:
            slots = sum(worker.slots for worker in serving)
            yield Finding(name, Status.GOOD, f"{', '.join(w.name for w in serving)}: {slots} slots")
        else:
            remedy = f"Start one: `celery -A workers.app worker -Q {queue.value}`; runs wait until then."
            yield Finding(name, Status.BAD, "no worker serves it", remedy)
    others = sorted({worker.version for worker in workers} - {__version__})
    if others:
        detail = f"workers run Speciate {', '.join(others)}; this command is of {__version__}"
        yield Finding("versions", Status.WARNING, detail, "Finish the upgrade.")


def _tiers(workers: tuple[WorkerProcess, ...]) -> Iterator[Finding]:
    tiers = {worker.name: worker.tier for worker in workers if worker.tier}
    if not tiers:
        return
    detail = ", ".join(f"{name}: {tier}" for name, tier in sorted(tiers.items()))
    if UNSAFE in tiers.values():
        yield Finding("tiers", Status.WARNING, detail, "Candidates of an unsafe worker are not contained at all.")
    elif len(set(tiers.values())) > 1:
        yield Finding("tiers", Status.WARNING, detail, "Set SPECIATE_SANDBOX: results of several tiers do not compare.")
    else:
        yield Finding("tiers", Status.GOOD, detail)


def _work(http: httpx.Client) -> Iterator[Finding]:
    answer = http.get("/metrics")
    if answer.status_code != httpx.codes.OK:
        remedy = "The token has to be one that may read the whole installation."
        yield Finding("metrics", Status.WARNING, f"/metrics answers {answer.status_code}", remedy)
        return
    families = text_string_to_metric_families(answer.text)
    found = {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}
    yield _queues(found)
    yield _reconciler(found)
    yield _runs(found)
    secrets = [found.get(("speciate_sealed_secrets", (state,))) for state in ("open", "no_key", "other_key")]
    # An older API does not say, and neither does one whose database is away.
    if None not in secrets:
        yield of_service(*(int(each or 0) for each in secrets))


Samples = dict[tuple[str, tuple[str, ...]], float]


def _queues(found: Samples) -> Finding:
    units = sum(n for (name, _), n in found.items() if name == "speciate_queue_units")
    oldest = {labels[0]: age for (name, labels), age in found.items() if name == "speciate_queue_oldest_seconds"}
    kind = max(oldest, key=lambda each: oldest[each], default="")
    age = oldest.get(kind, 0.0)
    if age > LONG_WAIT_S:
        detail = f"{kind} work has waited for {age:.0f} s"
        return Finding("work", Status.WARNING, detail, "Add workers of its queue, or see what the ones there do.")
    waits = f", the oldest {kind} work for {age:.0f} s" if age else ""
    return Finding("work", Status.GOOD, f"{units:.0f} units are ready or leased{waits}")


def _reconciler(found: Samples) -> Finding:
    age, overdue = found.get(("speciate_reconciler_age_seconds", ())), found.get(("speciate_leases_overdue", ()), 0)
    remedy = "Start a worker of the queue control, or look at its log."
    if age is None or age > SILENT_S:
        detail = "never looked" if age is None else f"has not looked for {age:.0f} s"
        return Finding("reconciler", Status.BAD, detail, remedy)
    if overdue:
        return Finding("reconciler", Status.WARNING, f"{overdue:.0f} expired leases are not taken back", remedy)
    return Finding("reconciler", Status.GOOD, "looks, and no lease is overdue")


def _runs(found: Samples) -> Finding:
    stalled = found.get(("speciate_runs_stalled", ()), 0)
    alarmed = found.get(("speciate_runs_alarmed", ()), 0)
    if stalled or alarmed:
        detail = f"{stalled:.0f} running runs commit nothing, {alarmed:.0f} fail at most of their candidates"
        return Finding("runs", Status.WARNING, detail, "`speciate runs list --state running`, then `runs watch RUN`.")
    return Finding("runs", Status.GOOD, "none is stuck or has an alarm")


def _policy(client: Client, slug: str) -> Finding:
    try:
        client.policies.ping(slug)
    except SpeciateError as error:
        return failed(f"policy {slug}", Status.WARNING, error)
    return Finding(f"policy {slug}", Status.GOOD, "answers")
