"""``speciate webhooks``: send unlocks, ends of runs and alarms to HTTP endpoints."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from speciate.cli import output
from speciate.cli.common import Limit, client, command, command_group, first_records, invalid_argument
from speciate.cli.errors import ExitCode
from speciate.domain.webhook import SUBSCRIBABLE, DeliveryState

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.schema.webhooks import DeliveryRecord

app = command_group()

WebhookId = Annotated[UUID, typer.Argument(metavar="WEBHOOK", help="Webhook id; see `speciate webhooks list`.")]
_TEST_TIMEOUT_S: Final = 20.0


@command(
    app,
    "add",
    "speciate webhooks add https://hooks.example/speciate",
    "speciate webhooks add https://hooks.example/speciate --event unlock --event alarm",
)
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Endpoint that receives events by POST.")],
    event: Annotated[
        list[str] | None, typer.Option(help="unlock, run.finished or alarm; repeatable.", show_default="all")
    ] = None,
    description: Annotated[str, typer.Option(help="Description, one line.")] = "",
) -> None:
    """Create a webhook.

    Its secret, which signs the deliveries, is printed once, alone on standard output.
    """
    for each in event or ():
        if each not in SUBSCRIBABLE:
            raise invalid_argument("--event", f"is {each!r}: expected {', '.join(SUBSCRIBABLE)}")
    created = client().webhooks.add(url, event or SUBSCRIBABLE, description=description)
    output.exit_with_json(created)
    output.print_line(created.secret)
    output.print_note(f"Webhook {created.id} receives {', '.join(created.events)}. Its secret cannot be shown again.")


@command(app, "list", "speciate webhooks list", "speciate webhooks list --json | jq .url")
def list_(limit: Limit = 50) -> None:
    """List the webhooks of the project, newest first."""
    records = first_records(client().webhooks.list(), limit)
    output.print_records(
        records,
        ("id", "URL", "events", "description", "created"),
        lambda w: (w.id, w.url, ", ".join(w.events), w.description, output.format_time(w.created_at)),
        empty="The project has no webhooks yet: speciate webhooks add --help",
    )


@command(app, "remove", "speciate webhooks remove 019a…")
def remove(webhook: WebhookId) -> None:
    """Delete a webhook and its pending deliveries."""
    client().webhooks.remove(webhook)
    output.print_result({"removed": str(webhook)}, f"Deleted webhook {webhook}.")


@command(app, "test", "speciate webhooks test 019a…")
def send_test(webhook: WebhookId) -> None:
    """Send a test event and report the result.

    Exits with 1 if the endpoint did not accept it.
    """
    service = client()
    sent = _first_attempt(service, service.webhooks.test(webhook))
    if sent.state == DeliveryState.DELIVERED:
        output.print_result(sent, f"Delivered: status {sent.status}.")
        return
    waits = f"Not delivered: {sent.error or 'no response yet'}. Retrying for a day."
    output.print_result(sent, waits if sent.attempts else "Not sent yet. Check that a control worker is running.")
    raise typer.Exit(ExitCode.FAILED)


def _first_attempt(service: Client, sent: DeliveryRecord) -> DeliveryRecord:
    """Return a delivery after its first attempt or a timeout."""
    deadline = time.monotonic() + _TEST_TIMEOUT_S
    while time.monotonic() < deadline:
        now = next((d for d in islice(service.webhooks.deliveries(sent.webhook_id), 100) if d.id == sent.id), sent)
        if now.state == DeliveryState.DELIVERED or now.error is not None:
            return now
        time.sleep(0.2)
    return sent


@command(app, "deliveries", "speciate webhooks deliveries 019a…", "speciate webhooks deliveries 019a… --state failed")
def deliveries(
    webhook: WebhookId,
    state: Annotated[
        str | None, typer.Option(help="Only deliveries in this state: pending, delivered or failed.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List deliveries of a webhook, newest first."""
    records = first_records(client().webhooks.deliveries(webhook, state=state), limit)
    output.print_records(
        records,
        ("event", "state", "attempts", "status", "last error", "created", "due"),
        lambda d: (d.event, d.state.value, d.attempts, d.status, d.error,
                   output.format_time(d.created_at), output.format_time(d.due_at)),
        empty="There are no deliveries yet.",
    )  # fmt: skip
