-- claim: Lease a ready unit of a running run.
UPDATE work w SET state = 'leased', lease_token = :token, attempt = attempt + 1,
  lease_until = clock_timestamp() + make_interval(secs => :lease_s)
FROM run_progress p
WHERE w.id = :id AND w.state = 'ready' AND p.run_id = w.run_id AND p.state = 'running'
  AND (w.kind = 'confirm' OR p.budget_seconds IS NULL
    OR greatest(0, extract(epoch FROM clock_timestamp() - p.running_since)) + p.seconds < p.budget_seconds)
RETURNING w.run_id, w.kind, w.lane, w.ordinal, w.attempt, w.payload, p.events

-- extend: Renew a lease.
UPDATE work SET lease_until = clock_timestamp() + make_interval(secs => :lease_s)
WHERE id = :id AND lease_token = :token AND state = 'leased'

-- release: Make a unit ready again, which counts as no attempt; lost external evaluations are requested again.
WITH dropped AS (
  DELETE FROM external_evaluations e USING work w
  WHERE w.id = :id AND w.lease_token = :token AND w.state = 'leased' AND e.work_id = w.id
    AND e.result -> 'failure' ->> 'reason' IN ({lost}))
UPDATE work SET state = 'ready', lease_token = NULL, lease_until = NULL, dispatched_at = NULL, attempt = attempt - 1,
  reserved_tokens = 0, reason = :reason
WHERE id = :id AND lease_token = :token AND state = 'leased'
RETURNING (SELECT reserved_tokens FROM work WHERE id = :id) AS reserved

-- expire: Expire leases at once, which counts as no attempt: the reconciler returns the units to the queue.
-- The new token keeps a late heartbeat of the stopping worker from renewing the lease.
UPDATE work SET lease_until = clock_timestamp(), lease_token = gen_random_uuid(), attempt = greatest(attempt - 1, 0)
WHERE lease_token = ANY(:tokens) AND state = 'leased' AND id = ANY(:ids)

-- resumed_since: True if a run was resumed after an event.
SELECT EXISTS (SELECT FROM events WHERE run_id = :id AND seq > :seq AND kind = :resumed)

-- pause_in_place: Pause a run without inserting a row.
UPDATE run_progress SET seconds = {running_seconds}, running_since = NULL, revision = revision + 1, state = 'paused',
  reason = :reason, reserved_tokens = reserved_tokens - :reserved, tokens = tokens + :tokens, cost = cost + :cost,
  estimated_tokens = estimated_tokens + :estimated
WHERE run_id = :id AND state IN ('running', 'paused') RETURNING revision, events

-- charge_cancelled: Charge a unit that was cancelled meanwhile, once, in place of what it had reserved.
WITH unit AS (
  UPDATE work SET lease_token = NULL WHERE id = :id AND lease_token = :token AND state = 'cancelled'
  RETURNING run_id, reserved_tokens)
UPDATE run_progress p SET tokens = p.tokens + :tokens, cost = p.cost + :cost, revision = p.revision + 1,
  estimated_tokens = p.estimated_tokens + :estimated, reserved_tokens = p.reserved_tokens - unit.reserved_tokens
FROM unit WHERE p.run_id = unit.run_id

-- reserve: Reserve tokens for a unit.
UPDATE work SET reserved_tokens = :tokens WHERE id = :id AND lease_token = :token AND state = 'leased'
RETURNING (SELECT reserved_tokens FROM work WHERE id = :id) AS before

-- running_seconds_of: Running seconds of a run.
SELECT {running_seconds} FROM run_progress WHERE run_id = :id

-- arms: Statistics of the policies of an ensemble.
SELECT arms FROM run_progress WHERE run_id = :id
