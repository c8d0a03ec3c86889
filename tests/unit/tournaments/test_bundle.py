"""Bundles of tournaments: what is written verifies, and whatever was changed since is named."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from speciate.tournaments import bundle
from speciate.tournaments.bundle import Verification
from speciate.tournaments.report.results import PENDING, last_line
from tests.unit.tournaments.bundles import PUBLIC, bundle_of, files_of, signed_again, zipped
from tests.unit.tournaments.synthetic import results_of, schedule_of

SCHEDULE = schedule_of(8, 2, 3)
BUNDLE = bundle_of(SCHEDULE, results_of(SCHEDULE, 2.0))
FORGER = Ed25519PrivateKey.from_private_bytes(b"f" * 32)


def verify(content: bytes, key: str | None = None) -> Verification:
    return bundle.verify(io.BytesIO(content), key)


def faults_of(verification: Verification) -> dict[str, tuple[str, ...]]:
    return {name: faults for name, faults in verification.faults.items() if faults}


def test_what_is_written_verifies() -> None:
    verification = verify(BUNDLE, PUBLIC)
    assert faults_of(verification) == {}
    assert [*verification.faults] == [
        *("archive", "signature", "files", "declaration", "versions", "plan", "report", "page")
    ]
    assert bundle_of(SCHEDULE, results_of(SCHEDULE, 2.0)) == BUNDLE


def test_runs_that_never_started_verify() -> None:
    results = results_of(SCHEDULE)
    results.state[3, 1] = PENDING  # as in a cancelled tournament
    assert verify(bundle_of(SCHEDULE, results)).passed


def _edited(name: str, old: str, new: str) -> dict[str, bytes]:
    files = files_of(BUNDLE)
    text = files[name].decode()
    assert old in text
    return {**files, name: text.replace(old, new, 1).encode()}


def _rows() -> list[str]:
    return files_of(BUNDLE)["runs.csv"].decode().splitlines(keepends=True)


def _with_rows(rows: list[str]) -> dict[str, bytes]:
    return {**files_of(BUNDLE), "runs.csv": "".join(rows).encode()}


def _better() -> dict[str, bytes]:
    """The last entrant reaches the target in a run in which it did not."""
    rows = _rows()
    i = next(i for i, row in enumerate(rows) if ",e2," in row and row.split(",")[7] == "0.0")
    cells = rows[i].split(",")
    return _with_rows([*rows[:i], ",".join([*cells[:7], "1.0", *cells[8:]]), *rows[i + 1 :]])


FORGED: dict[str, tuple[dict[str, bytes], str, str]] = {
    "a changed score": (_better(), "report", "standings.standings.2.pass_1.value is "),
    "a removed run": (_with_rows(_rows()[:-1]), "plan", "the run of e2 on p7@1 with seed 1 is missing"),
    "a doubled run": (_with_rows([*_rows(), _rows()[1]]), "plan", "the run of e0 on p0@1 with seed 0 is there twice"),
    "another seed": (_edited("runs.csv", "1,p0@1,0,e0,", "1,p0@1,5,e0,"), "plan", "with seed 5 is not declared"),
    "another declaration": (_edited("declaration.json", '"alpha": 0.05', '"alpha": 0.1'), "declaration", "was changed"),
    "another policy": (_edited("versions.json", "scripted", "openai"), "versions", "policy q0@1 has another SHA-256"),
    "a removed problem": (
        _edited("versions.json", '"p3@1": {', '"p33@1": {'),
        "versions",
        "p3@1 is declared and missing",
    ),
    "another report": (
        _edited("report.json", '"verdict": "', '"verdict": "better'),
        "report",
        "comparisons.0.verdict is",
    ),
    "another page": (_edited("report.html", "<h1>", "<h1>Not "), "page", "report.html does not show report.json"),
    "no number": (_edited("runs.csv", ",completed,,", ",completed,,x"), "plan", "cannot be read at line 2: could not"),
    "a number too many": (
        _edited("runs.csv", "completed,,", "completed,,1.0,"),
        "plan",
        "line 2: 39 cells: expected 38",
    ),
    "no report": ({**files_of(BUNDLE), "report.json": b"[" * 10_000}, "report", "recursion limit exceeded"),
}


@pytest.mark.parametrize("case", FORGED)
def test_whatever_was_changed_is_named(case: str) -> None:
    files, step, message = FORGED[case]
    faults = faults_of(verify(zipped(files)))
    assert any("was changed after the service had signed it" in fault for fault in faults["files"])
    assert message in " ".join(faults[step])
    # A forger who signs everything again with another key is named by the contents all the same.
    faults = faults_of(verify(signed_again(files, FORGER), PUBLIC))
    assert "files" not in faults
    assert message in " ".join(faults[step])
    (foreign,) = faults["signature"]
    assert f"not by {PUBLIC}" in foreign


def test_another_key_is_named() -> None:
    files = files_of(BUNDLE)
    assert verify(signed_again(files, FORGER)).passed  # sound in itself; only the key tells who signed
    (fault,) = faults_of(verify(signed_again(files, FORGER), PUBLIC))["signature"]
    assert "another service wrote it" in fault
    manifest = files["manifest.json"].replace(b'"format": 1', b'"format": 0')
    assert (
        "does not belong to manifest.json"
        in faults_of(verify(zipped({**files, "manifest.json": manifest})))["signature"][0]
    )


def test_newer_bundle_asks_for_a_newer_version() -> None:
    manifest: dict[str, Any] = {"kind": "speciate-tournament", "format": 2, "speciate": "9.1", "files": []}
    files = {**files_of(BUNDLE), "manifest.json": json.dumps(manifest).encode()}
    (fault,) = faults_of(verify(zipped(files)))["archive"]
    assert "verify it with Speciate 9.1 or later" in fault


def test_archives_that_are_none_are_not_unpacked() -> None:
    files = files_of(BUNDLE)
    assert "no complete ZIP archive" in faults_of(verify(BUNDLE[: len(BUNDLE) // 2]))["archive"][0]
    assert "no complete ZIP archive" in faults_of(verify(b""))["archive"][0]
    traversal = faults_of(verify(zipped({**files, "../../etc/passwd": b"x"})))
    assert "'../../etc/passwd' was added" in traversal["archive"][0]
    fewer = {name: content for name, content in files.items() if name != "manifest.sig"}
    assert "'manifest.sig' was" in faults_of(verify(zipped(fewer)))["archive"][0]
    bomb = zipped({**files, "report.json": bytes(80 << 20)})
    assert len(bomb) < 1 << 20
    assert "80" in (fault := faults_of(verify(bomb))["archive"][0])
    assert "would fill the memory" in fault
    file = io.BytesIO(zipped(files))
    with pytest.warns(UserWarning, match="Duplicate"), ZipFile(file, "a") as archive:
        archive.writestr("runs.csv", "")
    assert "'runs.csv'" in faults_of(verify(file.getvalue()))["archive"][0]


def test_damaged_content_is_named() -> None:
    at = BUNDLE.index(b"runs.csv") + 200
    damaged = BUNDLE[:at] + bytes(64) + BUNDLE[at + 64 :]
    assert "no complete ZIP archive" in faults_of(verify(damaged))["files"][0]


def test_random_damage_never_passes_and_never_crashes() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        content = bytearray(BUNDLE)
        content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        verification = verify(bytes(content), PUBLIC)
        # The bytes between the parts, such as dates of files, carry nothing.
        assert not verification.passed or files_of(bytes(content)) == files_of(BUNDLE)


_VERIFY = """
import re, sys
from speciate.tournaments.bundle import verify
assert not verify(open(sys.argv[1], "rb")).passed
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10)
"""


@pytest.mark.parametrize("compression", [ZIP_DEFLATED, ZIP_BZIP2])
def test_a_bomb_that_states_a_small_size_does_not_fill_the_memory(tmp_path: Path, compression: int) -> None:
    with ZipFile(bomb := tmp_path / "bomb.zip", "w") as archive:
        for name, content in files_of(BUNDLE).items():
            archive.writestr(name, bytes(1 << 29) if name == "manifest.json" else content, compression)
        archive.getinfo("manifest.json").file_size = 100
    ended = subprocess.run([sys.executable, "-c", _VERIFY, str(bomb)], capture_output=True, text=True, check=True)
    assert int(ended.stdout) < 300, f"a file of {bomb.stat().st_size} bytes used {ended.stdout.strip()} MiB"


@pytest.mark.parametrize("reason", ["Traceback:\nKeyError", "step: 10%\rKeyError", "\nKeyError\r\n", "a\x0bKeyError"])
def test_a_reason_is_one_line_of_the_table(reason: str) -> None:
    assert last_line(reason) == "KeyError"


@pytest.mark.parametrize(
    ("source", "goal", "name", "like"),
    [("policies", "problems", "q0@1", "p0@1"), ("problems", "policies", "p3@1", "q0@1")],
)
def test_a_version_of_the_wrong_kind_is_missing(source: str, goal: str, name: str, like: str) -> None:
    versions = json.loads(files_of(BUNDLE)["versions.json"])
    versions[goal][name] = {**versions[goal][like], **({"name": name} if goal == "problems" else {})}
    del versions[source][name]
    faults = faults_of(verify(zipped({**files_of(BUNDLE), "versions.json": json.dumps(versions).encode()})))
    assert f"{name} is declared and missing" in faults["versions"][0]
