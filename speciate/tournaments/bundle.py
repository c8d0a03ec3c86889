"""A tournament as one signed archive, and its verification without a service.

The archive holds the declaration, the versions, every planned run and the report. Its manifest has the SHA-256 of these
files and is signed (Ed25519).
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipExtFile, ZipFile, ZipInfo

import numpy as np
from pydantic import JsonValue, ValidationError, model_validator
from pydantic_core import from_json

from speciate import __version__
from speciate.domain.errors import SpeciateError, TooLargeError
from speciate.domain.tournament import PlannedRun, Schedule, Tournament
from speciate.domain.validation import first_mistake
from speciate.domain.values import digest_of
from speciate.tournaments.rendering.html import page
from speciate.tournaments.report.build import make_report
from speciate.tournaments.report.measures import Execution, ReportModel
from speciate.tournaments.report.models import Amendment, PolicyFacts, ProblemFacts, Report
from speciate.tournaments.report.results import MISSING, STATES, Results, missing_reason, plan_axes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT: Final = 1
DECLARATION: Final = "declaration.json"
VERSIONS: Final = "versions.json"
RUNS: Final = "runs.csv"
REPORT: Final = "report.json"
PAGE: Final = "report.html"
_MANIFEST: Final = "manifest.json"
_SIGNATURE: Final = "manifest.sig"
# Runs are read in parts, the other files as a whole.
_MOST_BYTES: Final = dict.fromkeys((DECLARATION, VERSIONS, REPORT, PAGE, _MANIFEST, _SIGNATURE), 1 << 26) | {
    RUNS: 1 << 30
}
_SIGNED: Final = (DECLARATION, VERSIONS, RUNS, REPORT, PAGE)
_PLAN_COLUMNS: Final = ("number", "problem", "seed", "entrant", "run_id", "state", "reason")
_TWICE: Final = "is there twice: one of its results could have been chosen"
_UNDECLARED: Final = "is not declared: it was added, or its seed was changed"
_MOST_FAULTS: Final = 5


class Declared(ReportModel):
    """The declaration as it was hashed before the first run, and its amendments."""

    declaration: dict[str, JsonValue]
    digest: str
    amendments: tuple[Amendment, ...]

    @cached_property
    def schedule(self) -> Schedule:
        declared = Tournament.model_validate(self.declaration)
        return Schedule.of(declared, [amendment.extension for amendment in self.amendments])


class BundledPolicy(ReportModel):
    """A policy version; its definition names keys and holds none."""

    digest: str
    definition: dict[str, JsonValue]


class Versions(ReportModel):
    """What the runs used, by name."""

    problems: dict[str, ProblemFacts]
    policies: dict[str, BundledPolicy]
    executions: tuple[Execution, ...] = ()

    def report(self, schedule: Schedule, amendments: Sequence[Amendment], results: Results) -> Report:
        policies = {
            name: PolicyFacts.model_validate({**policy.definition, "name": name, "digest": policy.digest})
            for name, policy in self.policies.items()
        }
        return make_report(schedule, amendments, results, self.problems, policies, self.executions)


class Manifest(ReportModel):
    """What is signed."""

    kind: Literal["speciate-tournament"] = "speciate-tournament"
    format: int = FORMAT
    speciate: str = __version__
    """Version of Speciate that computed the report."""
    declaration: str
    """Digest of the declaration."""
    public_key: str
    """Ed25519, 64 hexadecimal digits."""
    sha256: dict[str, str]
    """By file."""

    @model_validator(mode="before")
    @classmethod
    def _format_is_known(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(given := values.get("format"), int) and given > FORMAT:
            needed = f"verify it with Speciate {str(values.get('speciate'))[:40]} or later"
            raise ValueError(f"the bundle has format {given}, and Speciate {__version__} reads {FORMAT}: {needed}")
        return values


class Verification(ReportModel):
    """The checks of a bundle, up to the first part that cannot be read."""

    manifest: Manifest | None
    faults: dict[str, tuple[str, ...]]
    """By check: what failed, where, and what it means; empty if it passed."""

    @property
    def passed(self) -> bool:
        return not any(self.faults.values())


def write(
    file: BinaryIO, declared: Declared, versions: Versions, runs: Iterable[Sequence[Any]], key: Ed25519PrivateKey
) -> None:
    """Write a bundle; equal contents give equal bytes.

    A run has the values of ``run_columns``. The report is computed from the written runs, as a verification does it.
    ``TooLargeError`` if a file of the bundle would be larger than a verification reads.
    """
    schedule = declared.schedule
    with ZipFile(file, "w") as archive:

        def put(name: str, text: str) -> None:
            archive.writestr(ZipInfo(name), text, ZIP_DEFLATED)

        put(DECLARATION, declared.model_dump_json(indent=2))
        put(VERSIONS, versions.model_dump_json(indent=2))
        table = ZipInfo(RUNS)
        table.compress_type = ZIP_DEFLATED
        with archive.open(table, "w") as raw, io.TextIOWrapper(raw, "utf-8", newline="") as text:
            rows = csv.writer(text, lineterminator="\n")
            rows.writerow(run_columns(schedule.declared))
            rows.writerows(runs)
        report = versions.report(schedule, declared.amendments, _read_runs(archive, schedule)[0])
        put(REPORT, report.model_dump_json(indent=2))
        put(PAGE, page(report))
        for name in _SIGNED:
            if (size := archive.getinfo(name).file_size) > _MOST_BYTES[name]:
                message = f"{name} of the bundle would have {size:,} bytes: expected at most {_MOST_BYTES[name]:,}."
                raise TooLargeError(message, remedy="Export the tournament in another format.")
        manifest = Manifest(
            declaration=declared.digest,
            public_key=key.public_key().public_bytes_raw().hex(),
            sha256={name: _sha256(archive, name) for name in _SIGNED},
        ).model_dump_json(indent=2)
        put(_MANIFEST, manifest)
        put(_SIGNATURE, key.sign(manifest.encode()).hex())


def run_columns(declared: Tournament) -> tuple[str, ...]:
    return (*_PLAN_COLUMNS, *Results.columns(declared))


def verify(file: BinaryIO, key: str | None = None) -> Verification:
    """Check a bundle without a service; with ``key`` it must be signed by this public key."""
    bundle = _Bundle(file, key)
    checks: dict[str, tuple[str, ...]] = {}
    for name, step in _STEPS.items():
        readable = True
        try:
            faults = [*step(bundle)]
        except ValidationError as error:
            readable, faults = False, [": ".join(first_mistake(error)).removeprefix(": ")]
        except (SpeciateError, ValueError, ArithmeticError) as error:
            readable, faults = False, [str(error)]
        except (BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
            readable, faults = False, [f"it is no complete ZIP archive ({error}): get the file again"]
        if (more := len(faults) - _MOST_FAULTS) > 0:
            faults[_MOST_FAULTS:] = [f"and {more:,} more"]
        checks[name] = tuple(faults)
        if not readable:
            break
    return Verification(manifest=vars(bundle).get("manifest"), faults=checks)


@dataclass
class _Bundle:
    file: BinaryIO
    key: str | None

    @cached_property
    def _archive(self) -> ZipFile:
        return ZipFile(self.file)

    def _read(self, name: str) -> bytes:
        with self._archive.open(name) as content:  # with a length: the directory may state a smaller size
            return content.read(_MOST_BYTES[name] + 1)

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest.model_validate_json(self._read(_MANIFEST))

    @cached_property
    def _declared(self) -> Declared:
        return Declared.model_validate_json(self._read(DECLARATION))

    @cached_property
    def _versions(self) -> Versions:
        return Versions.model_validate_json(self._read(VERSIONS))

    @property
    def _by(self) -> str:
        version = self.manifest.speciate
        otherwise = f", or Speciate {version} computes it otherwise than {__version__}: verify it with {version}"
        return "" if version == __version__ else otherwise

    def check_archive(self) -> Iterable[str]:
        files = self._archive.infolist()
        names = sorted(file.filename for file in files)
        if names != sorted(_MOST_BYTES):
            wrong = ({*names} ^ _MOST_BYTES.keys()) or {name for name in names if names.count(name) > 1}
            raise ValueError(f"{min(wrong)!r} was added, removed or doubled: expected {', '.join(_MOST_BYTES)}")
        for file in files:
            if file.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # others unpack all at once
                raise ValueError(f"{file.filename} is compressed otherwise than an export does it")
            if file.file_size > (most := _MOST_BYTES[file.filename]):
                size = f"{file.filename} has {file.file_size:,} bytes, and at most {most:,} are unpacked"
                raise ValueError(f"{size}: it would fill the memory, and is no part of an export")
        _ = self.manifest  # of a format that can be read
        return ()

    def check_signature(self) -> Iterator[str]:
        # Imported here: most commands verify nothing, and it takes as long to load as they run.
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        named = self.manifest.public_key
        if self.key is not None and self.key.strip().lower() != named:
            yield f"it is signed by {named}, not by {self.key}: another service wrote it, or its key has changed"
        signature, signed = (self._read(name) for name in (_SIGNATURE, _MANIFEST))
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(named)).verify(bytes.fromhex(signature.decode()), signed)
        except (InvalidSignature, ValueError):
            yield f"it does not belong to {_MANIFEST}: that was changed, or signed by another key than it names"

    def check_files(self) -> Iterator[str]:
        for name in _SIGNED:
            if _sha256(self._archive, name) != self.manifest.sha256.get(name):
                yield f"{name} has another SHA-256 than in {_MANIFEST}: it was changed after the service had signed it"

    def check_declaration(self) -> Iterator[str]:
        declared, digest = self._declared, digest_of(self._declared.declaration)
        if digest != declared.digest:
            yield f"its SHA-256 is {digest}, and {declared.digest} was stored before the first run: it was changed"
        if digest != self.manifest.declaration:
            yield f"{_MANIFEST} is of another declaration, {self.manifest.declaration}: this one was put in its place"

    def check_versions(self) -> Iterator[str]:
        for name, policy in self._versions.policies.items():
            if digest_of(policy.definition) != policy.digest:
                yield f"policy {name} has another SHA-256 than {policy.digest}: its definition was changed"
        used = {name for entrant in self._declared.schedule.declared.entrants for name in entrant.policy_names}
        played = {*self._declared.schedule.problems}
        if lacking := sorted((used - self._versions.policies.keys()) | (played - self._versions.problems.keys())):
            raise ValueError(f"{lacking[0]} is declared and missing: it was removed")

    def check_report(self) -> Iterator[str]:
        computed = self._versions.report(self._declared.schedule, self._declared.amendments, self.runs[0])
        for difference in _differences(from_json(self._read(REPORT)), from_json(computed.model_dump_json())):
            yield f"{difference}: it does not follow from these runs and this declaration{self._by}"

    def check_page(self) -> Iterator[str]:
        if page(Report.model_validate_json(self._read(REPORT))).encode() != self._read(PAGE):
            yield f"{PAGE} does not show {REPORT}: one of them was replaced{self._by}"

    @cached_property
    def runs(self) -> tuple[Results, list[str]]:
        return _read_runs(self._archive, self._declared.schedule)


def _sha256(archive: ZipFile, name: str) -> str:
    with archive.open(name) as content:
        return hashlib.file_digest(cast("ZipExtFile", content), "sha256").hexdigest()


def _read_runs(archive: ZipFile, schedule: Schedule) -> tuple[Results, list[str]]:
    """Return the results, and what is wrong with the runs."""
    results = Results.empty(schedule)
    with archive.open(RUNS) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as text:
        rows = csv.reader(text)
        try:
            return results, [*_fill(schedule, results, rows)]
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{RUNS} cannot be read at line {rows.line_num}: {error}") from None


def _fill(schedule: Schedule, results: Results, rows: Iterator[list[str]]) -> Iterator[str]:
    """Enter the runs of a table into the results; yield what is wrong with them."""
    columns = run_columns(schedule.declared)
    if tuple(next(rows, ())) != columns:
        raise ValueError("it has other columns than this declaration needs: it belongs to another one")
    unseen, axes = {*schedule.plan()}, plan_axes(schedule)
    for row in rows:
        _, problem, seed, entrant, _, state, reason, *values = row
        run = PlannedRun(problem, int(seed), entrant)
        if run not in unseen:
            known = all(name in axis for name, axis in zip(run, axes, strict=True))
            yield f"{_label(run)} {_TWICE if known else _UNDECLARED}"
            continue
        unseen.remove(run)
        if state in STATES:
            p, s, e = (axis[name] for name, axis in zip(run, axes, strict=True))
            if len(row) != len(columns):
                raise ValueError(f"{len(row)} cells: expected {len(columns)}")
            at = slice(p, p + 1), slice(s, s + 1), slice(e, e + 1)
            results.fill(at, STATES[state], np.array([[float(value) if value else math.nan for value in values]]))
            if STATES[state] == MISSING:
                results.reasons[p, s, e] = missing_reason(state, reason)
    yield from (f"{_label(run)} is missing: a declared run was removed" for run in sorted(unseen))


def _label(run: PlannedRun) -> str:
    return f"the run of {run.entrant} on {run.problem} with seed {run.seed}"


def _differences(stored: Any, computed: Any, where: str = "") -> Iterator[str]:
    """Yield where two JSON values differ; of numbers, by more than the arithmetic of machines does."""
    match stored, computed:
        case (dict(), dict()) if stored.keys() == computed.keys():
            for name in stored:
                yield from _differences(stored[name], computed[name], f"{where}.{name}")
        case (list(), list()) if len(stored) == len(computed):
            for i, pair in enumerate(zip(stored, computed, strict=True)):
                yield from _differences(*pair, f"{where}.{i}")
        case (int() | float(), int() | float()) if math.isclose(stored, computed, rel_tol=1e-6, abs_tol=1e-9):
            pass
        case _ if stored != computed:
            yield f"{where[1:]} is {str(stored)[:60]} in {REPORT} and {str(computed)[:60]} when computed"


_STEPS: Final[dict[str, Callable[[_Bundle], Iterable[str]]]] = {
    "archive": _Bundle.check_archive,
    "signature": _Bundle.check_signature,
    "files": _Bundle.check_files,
    "declaration": _Bundle.check_declaration,
    "versions": _Bundle.check_versions,
    "plan": lambda bundle: bundle.runs[1],
    "report": _Bundle.check_report,
    "page": _Bundle.check_page,
}
