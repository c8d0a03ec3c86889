"""Build a program in a contained process of its own, or take it from the compile cache.

The build sees what a candidate sees: no network, a read-only system, its own ``/tmp``. Its processes end before the
program starts, and only regular files leave it, as data that the worker never interprets.
"""

import base64
import binascii
import re
from typing import Final

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.build_cache import BuiltFiles
from evaluators.candidate_process import program_files
from evaluators.channel import ENVELOPE_BYTES, Message
from evaluators.failures import BATCH_DEADLINE, failure_of
from evaluators.session import EndReason, Session, SessionEndedError
from evaluators.text import sanitize
from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.language import Language
from speciate.domain.limits import Limits
from speciate.domain.values import FILE_PATH, digest_of

MAX_BUILT_FILES: Final = 1024
_FORMAT: Final = 2
_PATH: Final = re.compile(FILE_PATH.replace("._-", "._$-"))
"""With the dollar sign of Java's inner classes."""
_SCRATCH: Final = 8
"""Temporary space of a build, as a multiple of the size of its files: compilers keep intermediate files."""


def build_program(batch: EvaluationBatch, program: str) -> BuiltFiles | Failure:
    problem, language = batch.problem, batch.problem.language
    sources = program_files(program, problem)
    try:
        files = {name: (base64.b64encode(text.encode()).decode("ascii"), False) for name, text in sources.items()}
    except UnicodeEncodeError as error:
        return Failure(FailureKind.CRASHED, "build_failed", f"the program is not UTF-8: {error.reason}")
    if language is None or not language.build:
        return files
    key = digest_of([_FORMAT, files, language.model_dump(mode="json"), batch.surroundings])
    if batch.builds is not None and (cached := batch.builds.find(key)) is not None:
        return cached
    built = _build(batch, language, files)
    if isinstance(built, Failure):
        return built
    if batch.builds is not None:
        batch.builds.keep(key, files | built)
    return files | built


def _build(batch: EvaluationBatch, language: Language, files: BuiltFiles) -> BuiltFiles | Failure:
    limits = build_limits(batch.problem.limits, language)
    with ProcessStarter(batch.home, batch.commands(limits), 1) as starter:
        session = Session(starter.take(), frame_bytes=limits.output_bytes + ENVELOPE_BYTES, log_bytes=0)
        sizes = {"max_files": MAX_BUILT_FILES, "max_bytes": language.build_bytes}
        session.post({"files": files, "build": list(language.build), **sizes})
        try:
            message = session.receive(session.allow(language.build_s, batch.deadline))
        except SessionEndedError as ended:
            late = batch.expired and ended.ending is EndReason.LATE
            failure = failure_of(ended, session.end(), limits)
            if late or failure.lost:
                return BATCH_DEADLINE if late else failure
            return Failure(failure.kind, f"build_{failure.reason}", f"the build: {failure.detail}")
        session.end()
    return read_build(message, language.build_bytes)


def build_limits(limits: Limits, language: Language) -> Limits:
    """Return the limits of a build; processes, threads and cores are those of the problem."""
    scratch = _SCRATCH * language.build_bytes
    return limits.model_copy(
        update={
            "wall_s": language.build_s,
            "cpu_s": 2 * limits.cores * language.build_s,  # the wall limit comes first
            "memory_bytes": language.build_memory_bytes,
            "output_bytes": 4 * (language.build_bytes // 3 + MAX_BUILT_FILES),
            "file_bytes": scratch,
            "tmp_bytes": scratch,
            "tmp_files": 16 * MAX_BUILT_FILES,
        }
    )


def read_build(message: Message, max_bytes: int) -> BuiltFiles | Failure:
    match message:
        case {"error": "build_failed", "detail": str(detail)}:
            return Failure(FailureKind.CRASHED, "build_failed", sanitize(detail))
        case {"error": "too_large", "detail": str(detail)}:
            return Failure(FailureKind.INVALID_OUTPUT, "build_too_large", sanitize(detail))
        case {"built": dict(listed)} if len(listed) <= MAX_BUILT_FILES:
            built = {name: file for name, entry in listed.items() if (file := _file(name, entry)) is not None}
            size = sum(len(content) * 3 // 4 for content, _ in built.values())
            if len(built) == len(listed) and size <= max_bytes:
                return built
    return Failure(FailureKind.INVALID_OUTPUT, "build_malformed", "the build reported something else than its files")


def _file(name: str, entry: object) -> tuple[str, bool] | None:
    match entry:
        case [str(content), bool(program)] if _PATH.fullmatch(name):
            try:
                base64.b64decode(content, validate=True)
            except (binascii.Error, ValueError):
                return None
            return content, program
        case _:
            return None
