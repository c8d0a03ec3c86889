"""Checks of a running service, local or remote: API, servers, clock, workers, queues, runs and policies."""

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from speciate import __version__
from speciate.cli.doctor.findings import Finding, Status, error_finding, judged, secret_key_finding
from speciate.cli.policies import contact
from speciate.client import Client
from speciate.client.connection import Connection
from speciate.domain.capabilities import IMAGE_CAPABILITIES, STRONGEST
from speciate.domain.errors import SpeciateError, UnavailableError
from speciate.egress.sealing import VARIABLE
from speciate.ports.work import Queue
from speciate.schema.runs import WorkerProcess
from speciate.settings import UNSAFE

MAX_SKEW_S: Final = 5.0
MAX_WAIT_S: Final = 300.0
RECONCILER_TIMEOUT_S: Final = 15.0
"""Seconds without a pass after which the reconciler, which runs every second, counts as stopped."""


def check_service(url: str | None, tier: str | None) -> Iterator[Finding]:
    """Check the service, its servers, clock, workers, queues, runs and policies.

    Args:
        url: URL of the service; None for the one in the settings.
        tier: Sandbox tier that holds on this machine; None if the service is on another.
    """
    try:
        client = Client(url)
    except UnavailableError as error:
        yield error_finding("api", Status.BAD, error)
        return
    with client, httpx.Client(**Connection.to(url, None).options()) as http:
        try:
            ready = client.ready()
        except SpeciateError as error:
            yield error_finding("api", Status.BAD, error)
            return
        version = str(ready.get("version", ""))
        if version and version != __version__:
            detail = f"{client.url} is ready and runs Speciate {version}; this command is {__version__}"
            yield judged("api", detail, "Install the same version on this machine.")
        else:
            yield judged("api", f"{client.url} is ready")
        for server in ("postgresql", "redis"):
            if (said := str(ready.get(server, ""))).startswith("does not respond"):
                yield Finding(server, Status.BAD, f"{said} (as the service says)", "Start it: runs wait until then.")
            elif said:
                yield judged(server, f"responds to the service ({said})")
        yield from _clock(http)
        try:
            yield from _authenticated(client, http, tier)
        except SpeciateError as error:
            yield error_finding("access", Status.BAD, error)


def _authenticated(client: Client, http: httpx.Client, tier: str | None) -> Iterator[Finding]:
    """Run the checks that require a token."""
    workers = client.workers()
    yield from _workers(workers)
    yield from _tiers(workers, tier)
    for worker in workers:
        if Queue.EVALUATE.value in worker.queues:
            further = [*sorted(worker.languages), *sorted(IMAGE_CAPABILITIES.intersection(worker.tools))]
            yield judged("languages of workers", f"{worker.name}: {', '.join(['Python', *further])}")
    yield from _work(http)
    for slug in sorted({policy.definition.slug for policy in client.policies.list()}):
        try:
            yield judged(f"policy {slug}", contact(client.policies.ping(slug)))
        except SpeciateError as error:
            yield error_finding(f"policy {slug}", Status.WARNING, error)


def _clock(http: httpx.Client) -> Iterator[Finding]:
    before = time.time()
    response = http.get("/healthz")
    middle = (before + time.time()) / 2
    if "date" not in response.headers:
        return
    # The header truncates to whole seconds.
    skew = parsedate_to_datetime(response.headers["date"]).timestamp() + 0.5 - middle
    if abs(skew) > MAX_SKEW_S:
        detail = f"the service's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
        yield judged("clock", detail, "Synchronize both with NTP: token expiry and logs depend on the clock.")
    else:
        yield judged("clock", "the service and this machine agree")


def _workers(workers: tuple[WorkerProcess, ...]) -> Iterator[Finding]:
    for queue in Queue:
        serving = [worker for worker in workers if queue.value in worker.queues]
        if queue is Queue.LEARN and not serving:
            continue  # optional: a run that learns says itself that no worker does
        name = f"queue {queue.value}"
        if serving:
            slots = sum(worker.slots for worker in serving)
            yield judged(name, f"{', '.join(w.name for w in serving)}: {slots} slots")
        else:
            remedy = "Restart `speciate up`, or the container or process of its worker. Runs wait until then."
            yield Finding(name, Status.BAD, "no worker consumes it", remedy)
    others = sorted({worker.version for worker in workers} - {__version__})
    if others:
        detail = f"workers run Speciate {', '.join(others)}; this command is {__version__}"
        yield judged("versions", detail, "Complete the upgrade.")


def _tiers(workers: tuple[WorkerProcess, ...], own: str | None) -> Iterator[Finding]:
    tiers = {worker.name: worker.tier for worker in workers if worker.tier}
    if not tiers:
        return
    detail, remedy = ", ".join(f"{name}: {tier}" for name, tier in sorted(tiers.items())), ""
    if UNSAFE in tiers.values():
        remedy = "Unset SPECIATE_SANDBOX: tier unsafe does not contain candidates."
    elif len(set(tiers.values())) > 1:
        remedy = "Set SPECIATE_SANDBOX to one tier: results of different tiers are not comparable."
    elif own == STRONGEST and own not in tiers.values():
        detail += f"; this machine can run tier {own}"
        remedy = "Restart `speciate up`: workers choose their tier at the start."
    yield judged("tiers", detail, remedy)


def _work(http: httpx.Client) -> Iterator[Finding]:
    response = http.get("/metrics")
    if response.status_code != httpx.codes.OK:
        remedy = "Use a token that may read the whole installation."
        yield judged("metrics", f"/metrics returns status {response.status_code}", remedy)
        return
    families = text_string_to_metric_families(response.text)
    samples = {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}
    yield _queues(samples)
    yield _reconciler(samples)
    yield _runs(samples)
    counts = [samples.get(("speciate_sealed_secrets", (state,))) for state in ("open", "no_key", "other_key")]
    if None not in counts:  # missing while the database is unavailable
        yield secret_key_finding(*(int(count or 0) for count in counts), of=f"{VARIABLE} of the API")


_MAX_LEARN_WAIT_S: Final = 60.0
_LEARN_REMEDY: Final = "Start a learn worker: `speciate up --learn`, or the profile `learn` of Docker Compose."
Samples = dict[tuple[str, tuple[str, ...]], float]


def _queues(samples: Samples) -> Finding:
    units = sum(n for (name, labels), n in samples.items() if name == "speciate_queue_units" and "parked" not in labels)
    oldest = {labels[0]: age for (name, labels), age in samples.items() if name == "speciate_queue_oldest_seconds"}
    kind = max(oldest, key=lambda each: oldest[each], default="")
    age = oldest.get(kind, 0.0)
    if age > (_MAX_LEARN_WAIT_S if kind == Queue.LEARN else MAX_WAIT_S):
        detail = f"{kind} work has been waiting for {age:.0f} s"
        remedy = "Add workers for its queue, or check the logs of the current ones."
        return judged("work", detail, _LEARN_REMEDY if kind == Queue.LEARN else remedy)
    waits = f", the oldest ({kind}) for {age:.0f} s" if age else ""
    return judged("work", f"{units:.0f} units ready or leased{waits}")


def _reconciler(samples: Samples) -> Finding:
    age, overdue = samples.get(("speciate_reconciler_age_seconds", ())), samples.get(("speciate_leases_overdue", ()), 0)
    remedy = "Start a worker for the control queue, or check its log."
    if age is None or age > RECONCILER_TIMEOUT_S:
        detail = "has never run" if age is None else f"last ran {age:.0f} s ago"
        return Finding("reconciler", Status.BAD, detail, remedy)
    if overdue:
        return judged("reconciler", f"{overdue:.0f} expired leases not returned to the queue", remedy)
    return judged("reconciler", "running, no overdue leases")


def _runs(samples: Samples) -> Finding:
    stalled = samples.get(("speciate_runs_stalled", ()), 0)
    alarmed = samples.get(("speciate_runs_alarmed", ()), 0)
    if stalled or alarmed:
        detail = f"{stalled:.0f} stalled, {alarmed:.0f} with an alarm: candidates fail or a policy is unavailable"
        remedy = "Find them with `speciate runs list --state running --group all`, then `speciate runs watch RUN`."
        return judged("runs", detail, remedy)
    return judged("runs", "none stalled, no alarms")
