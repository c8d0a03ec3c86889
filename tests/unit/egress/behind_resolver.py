"""Attack the egress guard with a real name server: run in a network of its own, where it is the only one.

Started by ``test_name_servers``; prints what happened as JSON. Each name answers differently, by its first label.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from speciate.egress import network
from speciate.egress.delivery import send
from speciate.egress.network import AllowedNetworks
from speciate.egress.transport import GuardedTransport, check_url
from tests.support.openai_endpoint import serve

PUBLIC, LOOPBACK, METADATA = "198.41.0.4", "127.0.0.1", "169.254.169.254"
ANSWERS: dict[str, list[str]] = {
    "rebinding": [PUBLIC, LOOPBACK],
    "webhook": [PUBLIC, LOOPBACK],
    "pinned": [LOOPBACK, METADATA],
    "mixed": [f"{METADATA} {LOOPBACK}"],
}
"""Addresses of each question for a name, the last one repeated; every other name is never answered."""

asked: Counter[str] = Counter()


def answer_questions(server: socket.socket) -> None:
    """Answer questions for IPv4 addresses as listed; there are no others."""
    while True:
        question, client = server.recvfrom(4096)
        end = question.index(b"\0", 12) + 5
        label = question[13 : 13 + question[12]].decode()
        if label not in ANSWERS:
            continue
        addresses: list[str] = []
        if question[end - 4 : end - 2] == b"\0\1":
            given = ANSWERS[label]
            addresses = given[min(asked[label], len(given) - 1)].split()
            asked[label] += 1
        head = question[:2] + b"\x85\x80\0\1" + len(addresses).to_bytes(2, "big") + b"\0\0\0\0"
        records = [b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(address) for address in addresses]
        server.sendto(head + question[12:end] + b"".join(records), client)


def outcome(act: Callable[[], object]) -> str:
    """Return the result as text, or the name of the exception."""
    try:
        return str(act())
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


def main() -> None:
    """Run every attack and print the outcomes."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((LOOPBACK, 53))
    threading.Thread(target=answer_questions, args=(server,), daemon=True).start()
    network.RESOLVE_S = 0.5
    found: dict[str, Any] = {}
    with serve() as endpoint:

        def get(name: str, allowed: AllowedNetworks, times: int) -> list[str]:
            with httpx.Client(transport=GuardedTransport(allowed), timeout=5) as client:
                url = f"{endpoint.url.replace(LOOPBACK, name)}/models"
                return [outcome(lambda: client.get(url).status_code) for _ in range(times)]

        nothing, loopback = AllowedNetworks(), AllowedNetworks(("loopback",))
        found["check"] = outcome(lambda: check_url("http://rebinding.test/", nothing))
        found["rebinding"] = get("rebinding.test", nothing, 1)
        hook = endpoint.url.replace(LOOPBACK, "webhook.test")
        found["webhook"] = [send(hook, b"{}", {}, nothing).error for _ in range(2)]
        found["reached"] = len(endpoint.headers)
        found["pinned"] = get("pinned.test", loopback, 3)
        found["mixed"] = get("mixed.test", loopback, 1)
        found["asked"] = dict(asked)
        found["silent"] = [*get("silent.test", nothing, 1), outcome(lambda: check_url("http://silent.test/", nothing))]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
