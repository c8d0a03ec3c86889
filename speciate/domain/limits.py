"""Limits of one evaluation."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic import Field, model_validator

from speciate.domain.values import Value

_DAY_S: Final = 86_400
_MOST_CORES: Final = 256


class Limits(Value):
    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"cores", "threads", "script_s"})

    wall_s: float = Field(default=2.0, gt=0, le=_DAY_S, examples=[10.0])
    """Seconds that the candidate may run or sleep, without the time that others keep it waiting for a processor. By the
    clock it has at most ten times as many."""
    cpu_s: float = Field(default=2.0, gt=0, le=_DAY_S * _MOST_CORES, examples=[10.0])
    """Processor seconds of all threads and processes together, rounded up; of a program in another language, of each
    call. Default: `cores` times `wall_s`, of which at least 2 count."""
    script_s: float | None = Field(default=None, gt=0, le=_DAY_S, examples=[600.0])
    """Seconds of the script's own part of an evaluation. Default: twice `wall_s`, and ten seconds."""
    cores: int = Field(default=1, ge=1, le=_MOST_CORES, examples=[4])
    """Threads with which BLAS, OpenMP, XLA and similar libraries compute. The evaluation takes as many of the worker's
    slots, at most all."""
    memory_bytes: int = Field(default=768 << 20, ge=64 << 20, le=1 << 40, examples=[2 << 30])
    """Resident memory of all processes together, beyond the interpreter with its preloaded modules."""
    output_bytes: int = Field(default=1 << 20, ge=1 << 10, le=64 << 20, examples=[4 << 20])
    """Size of one answer."""
    log_bytes: int = Field(default=64 << 10, ge=0, le=1 << 20, examples=[1 << 10])
    """Bytes kept of standard output, and of standard error."""
    file_bytes: int = Field(default=16 << 20, ge=0, le=1 << 30, examples=[1 << 20])
    """Largest file that the candidate may write."""
    threads: int = Field(default=64, ge=1, le=4096, examples=[8])
    """Threads that may run at once."""
    processes: int = Field(default=16, ge=1, le=256, examples=[4])
    """Processes that a script of kind `evaluator` or `in_process`, or a build, may run at once, beside the threads that
    `threads` allows and it does not use."""
    tmp_bytes: int = Field(default=32 << 20, ge=4096, le=8 << 30, examples=[256 << 20])
    """Size of the temporary folder."""
    tmp_files: int = Field(default=1024, ge=16, le=1 << 20, examples=[100])
    """Files and folders in the temporary folder."""

    @model_validator(mode="before")
    @classmethod
    def _cpu_follows_cores(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping) or "cpu_s" in fields:
            return fields
        wall_s, cores = fields.get("wall_s", 2.0), fields.get("cores", 1)
        if not isinstance(wall_s, int | float) or not isinstance(cores, int):
            return fields
        if not (0 < wall_s <= _DAY_S and 0 < cores <= _MOST_CORES):
            return fields  # the field itself refuses it
        return {**fields, "cpu_s": cores * max(2.0, wall_s)}
