"""Open all stores of an installation, once per process."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.errors import ConfigurationError
from speciate.messaging.client_library import redis
from speciate.messaging.signals import RedisSignals
from speciate.ports.work import CommitListener
from speciate.settings import Settings
from speciate.storage.access.audit import AuditLog
from speciate.storage.access.projects import ProjectStore
from speciate.storage.access.secrets import PolicyKeyStore, SealedSecrets
from speciate.storage.access.tokens import TokenStore
from speciate.storage.catalog import Catalog
from speciate.storage.database import ScopedStore, connect
from speciate.storage.declarations.campaigns import CampaignStore
from speciate.storage.declarations.results import TournamentResults
from speciate.storage.declarations.summaries import RunSummaries
from speciate.storage.declarations.tournaments import TournamentStore
from speciate.storage.metrics.overview import Overview
from speciate.storage.runs.queries import RunQueries
from speciate.storage.runs.store import PostgresRunStore
from speciate.storage.unlocks import UnlockStore
from speciate.storage.webhooks.store import WebhookStore
from speciate.storage.work.engines import EngineSessions
from speciate.storage.work.external import ExternalEvaluations
from speciate.storage.work.proposals import Proposals
from speciate.storage.work.store import PostgresWorkStore

if TYPE_CHECKING:
    from celery import Celery


@dataclass(frozen=True)
class Messages:
    """What carries messages between API and workers."""

    redis: redis.Redis
    celery: Celery
    signals: CommitListener


@dataclass(frozen=True)
class Stores:
    """Connections to PostgreSQL, Redis and the broker, and the stores that use them."""

    engine: sa.Engine
    direct: sa.Engine
    """Engine that bypasses the pooler, for session locks; the same engine without a pooler."""
    redis: redis.Redis
    celery: Celery
    catalog: Catalog
    policy_keys: PolicyKeyStore
    runs: PostgresRunStore
    work: PostgresWorkStore
    evaluations: ExternalEvaluations
    proposals: Proposals
    engines: EngineSessions
    queries: RunQueries
    overview: Overview
    unlocks: UnlockStore
    tournaments: TournamentStore
    campaigns: CampaignStore
    signals: CommitListener
    tokens: TokenStore
    audit: AuditLog
    projects: ProjectStore
    webhooks: WebhookStore
    secrets: SealedSecrets

    def within(self, project: UUID, *, own: bool = True) -> Stores:
        """Return the stores restricted to a project.

        ``own`` is False if a tournament or campaign counts towards quotas in place of its runs.
        """
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        scoped: dict[str, Any] = {
            name: replace(value, project=project) for name, value in values if isinstance(value, ScopedStore)
        }
        return replace(self, **scoped | {"runs": replace(scoped["runs"], own=own)})

    def close_unused(self) -> None:
        """Close the database connections that are not in use: each has a process of PostgreSQL, whose memory grows."""
        for engine in {self.engine, self.direct}:
            pool = engine.pool
            engine.dispose()
            # One in use returns to the old pool, which would leave it open. The new pool has copied no listener.
            sa.event.listen(pool, "checkin", lambda _, entry: entry.close())

    def close(self) -> None:
        self.close_unused()
        self.redis.close()
        self.celery.close()


def open_stores(
    settings: Settings, *, pool_size: int = 20, statement_s: float = 0.0, messages: Messages | None = None
) -> Stores:
    """Open the stores; they connect on first use. Without ``messages``, Redis carries them."""
    if settings.database_url is None or (settings.redis_url is None and messages is None):
        raise ConfigurationError(
            "SPECIATE_DATABASE_URL and SPECIATE_REDIS_URL are required.",
            remedy="Set both; `speciate up` starts its own servers and sets them.",
        )
    sealer = settings.sealer
    direct_url = settings.database_direct_url
    url = settings.database_url.get_secret_value()
    engine = connect(url, pool_size=pool_size, pooled=direct_url is not None, statement_s=statement_s)
    if messages is None:
        messages = _open_messages("" if settings.redis_url is None else settings.redis_url.get_secret_value())
    work, queries = PostgresWorkStore(engine, lease_s=settings.lease_s), RunQueries(engine)
    direct = engine if direct_url is None else connect(direct_url.get_secret_value(), pool_size=2)
    return Stores(
        engine=engine,
        direct=direct,
        redis=messages.redis,
        celery=messages.celery,
        catalog=Catalog(engine),
        policy_keys=PolicyKeyStore(engine, sealer),
        runs=PostgresRunStore(engine),
        work=work,
        evaluations=ExternalEvaluations(engine),
        proposals=Proposals(engine, work, queries),
        engines=EngineSessions(engine, work),
        queries=queries,
        overview=Overview(engine),
        unlocks=UnlockStore(engine),
        tournaments=TournamentStore(engine, summaries=RunSummaries(engine), results=TournamentResults(engine)),
        campaigns=CampaignStore(engine),
        tokens=TokenStore(engine),
        audit=AuditLog(engine, retry_for_s=0.5),  # an entry that cannot be stored goes to the log at once
        projects=ProjectStore(engine),
        webhooks=WebhookStore(engine, sealer),
        secrets=SealedSecrets(engine, sealer),
        signals=messages.signals,
    )


def _open_messages(redis_url: str) -> Messages:
    from redis.backoff import ExponentialBackoff
    from redis.retry import Retry

    from speciate.messaging.broker import make_celery, send_work

    # Broken connections are retried, timeouts are not: requests and workers would wait for a frozen server repeatedly.
    retry = Retry(ExponentialBackoff(cap=0.5, base=0.05), 2, supported_errors=(redis.ConnectionError,))
    client = redis.Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=5, retry=retry)
    celery = make_celery(redis_url)
    return Messages(client, celery, RedisSignals(client, send=partial(send_work, celery)))
