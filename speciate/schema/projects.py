"""Records of projects, tokens, principals and the audit log."""

from datetime import datetime
from uuid import UUID

from speciate.domain.access import Quota, Scope
from speciate.schema.base import Record


class QuotaUsage(Record):
    concurrent_runs: int
    """Runs that have not ended."""
    evaluations: int
    """Evaluations of what was created today: the whole budget while it runs, then the amount spent."""
    tokens: int
    """The same for policy tokens."""
    resets_at: datetime
    """End of the day, when the daily quotas reset."""


class ProjectRecord(Record):
    """A project: a namespace with its own access rights and quotas."""

    id: UUID
    slug: str
    title: str
    quota: Quota
    created_at: datetime


class ProjectUsage(ProjectRecord):
    """A project with the use of its quotas."""

    used: QuotaUsage


class TokenRecord(Record):
    """A token without its secret."""

    id: UUID
    project: str
    name: str
    """Owner or purpose."""
    prefix: str
    """First characters of the token."""
    scope: Scope
    created_by: str
    """Principal that created it."""
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    """Time of the last use, to the minute."""
    revoked_at: datetime | None


class NewToken(TokenRecord):
    token: str
    """The secret token. This is the only time that it is returned."""


class AuditRecord(Record):
    """An audited request: any change, and any request with a refused token."""

    id: UUID
    at: datetime
    principal: str
    """``operator``, ``local``, ``anonymous`` or ``token PREFIX NAME``."""
    project: str | None
    """Name of the project, if the request concerned one."""
    action: str
    """Method and route."""
    object: str
    """Path parameters, and the ID of a created object."""
    address: str
    """IP address of the client."""
    status: int
    """HTTP status of the response."""


class PrincipalRecord(Record):
    """The principal of a request."""

    name: str
    project: str
    scope: Scope
    all_projects: bool
