"""Candidates as rows: a type's fields with the names of columns are read and written without further declaration.

A column that may be NULL holds NULL for the default of its field. A failure takes three columns: ``failure`` with its
kind, ``failure_reason`` and ``failure_detail``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import BaseModel

from speciate.domain.candidate import Candidate, Evaluation, Failure, FailureKind, Individual, Proposal
from speciate.domain.policy import PolicyRole
from speciate.storage.tables.candidates import candidates

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def columns_of(*kinds: type[DataclassInstance | BaseModel], without: Collection[str] = (), prefix: str = "") -> str:
    """The columns of ``candidates`` that types have as fields, separated by commas."""
    names = dict.fromkeys(name for kind in kinds for name in _names(kind))
    return ", ".join(prefix + name for name in names if name in candidates.c and name not in without)


def _names(kind: type[DataclassInstance | BaseModel]) -> list[str]:
    if issubclass(kind, BaseModel):
        return list(kind.model_fields)
    names = [field.name for field in fields(kind)]
    return [*names, "failure_reason", "failure_detail"] if "failure" in names else names


def columns_except(table: sa.Table, *names: str) -> tuple[sa.Column[Any], ...]:
    """The columns of a table other than the named ones."""
    return tuple(column for column in table.c if column.name not in names)


def to_row(columns: Collection[sa.Column[Any]], *values: DataclassInstance, **computed: Any) -> dict[str, Any]:
    """Return a row as JSON values, from fields with the names of columns and ``computed`` ones; later values win.

    Raises ``KeyError`` for a column without a value.
    """
    nullable, row = {column.name for column in columns if column.nullable}, dict[str, Any]()
    for each in values:
        for field in fields(each):
            value = getattr(each, field.name)
            row[field.name] = None if field.name in nullable and value == _default(field) else value
    row |= computed
    return {column.name: row[column.name] for column in columns}


def from_row(kind: type[DataclassInstance], row: sa.Row[Any]) -> dict[str, Any]:
    """Return the arguments of a type whose fields have the names of columns of the row."""
    stored = row._mapping
    arguments = {
        field.name: frozen(stored[field.name])
        for field in fields(kind)
        if field.name in stored and (stored[field.name] is not None or _default(field) is MISSING)
    }
    if "failure" in arguments:
        arguments["failure"] = read_failure(row)
    return arguments


def read_individual(row: sa.Row[Any]) -> Individual:
    """Return a candidate as strategies and prompts see it, from a row with the columns of ``Individual``."""
    return Individual(
        **from_row(Individual, row) | {"role": PolicyRole(row.role), "targets": row.targets & ~row.refuted}
    )


def read_candidate(row: sa.Row[Any]) -> Candidate:
    """Return a candidate from a row with columns of ``Candidate``, ``Proposal`` and ``Evaluation``."""
    proposal = Proposal(**from_row(Proposal, row) | {"role": PolicyRole(row.role), "failure": None})
    return Candidate(**from_row(Candidate, row), proposal=proposal, evaluation=Evaluation(**from_row(Evaluation, row)))


def read_failure(row: sa.Row[Any]) -> Failure | None:
    if row.failure is None:
        return None
    return Failure(FailureKind(row.failure), row.failure_reason or "", row.failure_detail or "")


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def frozen(value: Any) -> Any:
    """Return a value with tuples in place of lists."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value
