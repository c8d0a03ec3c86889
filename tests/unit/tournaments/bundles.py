"""Bundles of synthetic tournaments, and changes to them."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from speciate.domain.policy import Policy
from speciate.domain.tournament import Schedule
from speciate.tournaments import bundle
from speciate.tournaments.bundle import BundledPolicy, Declared, Versions
from speciate.tournaments.report.models import ProblemFacts
from speciate.tournaments.report.results import PENDING, Results, plan_axes
from speciate.tournaments.report.run_summary import RUN_NUMBERS

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
PUBLIC = KEY.public_key().public_bytes_raw().hex()

Change = Callable[[bytes], bytes]


def bundle_of(schedule: Schedule, results: Results, key: Ed25519PrivateKey = KEY) -> bytes:
    policies = [
        Policy(slug=entrant.policy.partition("@")[0], kind="scripted") for entrant in schedule.declared.entrants
    ]
    facts = {"digest": "d", "evaluator_digest": "e", "target": "t", "forgeable": False}
    versions = Versions(
        problems={name: ProblemFacts(name=name, **facts) for name in schedule.problems},
        policies={
            f"{policy.slug}@1": BundledPolicy(digest=policy.digest, definition=policy.hashed()) for policy in policies
        },
    )
    declared = Declared(declaration=schedule.declared.stored_json(), digest=schedule.declared.digest, amendments=())
    file = io.BytesIO()
    bundle.write(file, declared, versions, map(list, _rows(schedule, results)), key)
    return file.getvalue()


def _rows(schedule: Schedule, results: Results) -> Any:
    axes = plan_axes(schedule)
    for number, run in enumerate(schedule.plan(), 1):
        at = tuple(axis[name] for axis, name in zip(axes, run, strict=True))
        numbers = [float(getattr(results, name)[at]) for name in RUN_NUMBERS]
        numbers += [*results.best_by[at], *results.by_policy[at].ravel(), results.score_margin[at]]
        state = "planned" if results.state[at] == PENDING else "completed"
        yield number, *run, "", state, "", *("" if math.isnan(n) else repr(float(n)) for n in numbers)


def files_of(content: bytes) -> dict[str, bytes]:
    with ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def signed_again(files: Mapping[str, bytes], key: Ed25519PrivateKey) -> bytes:
    """Return a bundle as a forger writes it, who updates all digests and signs with a key of his own."""
    manifest = json.loads(files["manifest.json"])
    manifest["sha256"] = {name: bundle.hashlib.sha256(files[name]).hexdigest() for name in manifest["sha256"]}
    manifest["public_key"] = key.public_key().public_bytes_raw().hex()
    raw = json.dumps(manifest).encode()
    return zipped({**files, "manifest.json": raw, "manifest.sig": key.sign(raw).hex().encode()})
