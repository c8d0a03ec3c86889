-- subscribed: Webhooks of an event, locked so that none is removed before its deliveries refer to it.
SELECT id FROM webhooks WHERE :event = ANY(events) AND project_id = :project_id ORDER BY id FOR KEY SHARE

-- run: What a payload says about a run.
SELECT r.id, r.project_id, g.alarm, p.slug || '@' || p.version AS problem, a.slug || '@' || a.version AS policy,
  b.slug || '@' || b.version AS mutator, {policy_names} AS ensemble, r.strategy
FROM runs r JOIN run_progress g ON g.run_id = r.id JOIN problems p ON p.id = r.problem_id
  JOIN policies a ON a.id = r.policy_id LEFT JOIN policies b ON b.id = {mutator}
WHERE r.id = :id

-- enqueue: Enqueue a delivery.
INSERT INTO webhook_deliveries (id, webhook_id, event, data) VALUES (:id, :webhook_id, :event, cast(:data AS jsonb))

-- claim: Lease due deliveries, one at a time per webhook, so that a silent receiver blocks one sender only.
-- Webhooks are drawn at random: in a fixed order the first ones with long queues would starve the others.
WITH firsts AS (
  SELECT DISTINCT ON (d.webhook_id) d.id FROM webhook_deliveries d
  WHERE d.state = 'pending' AND d.due_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM webhook_deliveries o
    WHERE o.webhook_id = d.webhook_id AND o.state = 'pending' AND o.lease_until > clock_timestamp())
  ORDER BY d.webhook_id, d.due_at),
due AS (SELECT id FROM firsts ORDER BY random() LIMIT :limit)
UPDATE webhook_deliveries d
SET lease_until = clock_timestamp() + make_interval(secs => :lease_s), attempts = d.attempts + 1
FROM due, webhooks w
WHERE d.id = due.id AND w.id = d.webhook_id AND d.state = 'pending'
  AND (d.lease_until IS NULL OR d.lease_until <= clock_timestamp())
RETURNING d.id, d.webhook_id, w.url, w.sealed, d.event, d.data, d.created_at, d.attempts,
  clock_timestamp() AS claimed_at

-- delivered: Record that a receiver accepted a delivery.
UPDATE webhook_deliveries SET state = 'delivered', ended_at = clock_timestamp(), lease_until = NULL, status = :status,
  error = NULL
WHERE id = :id AND state = 'pending'

-- too_late: True if the next attempt would be too late.
clock_timestamp() + make_interval(secs => :wait_s) > created_at + make_interval(secs => :tried_for_s)

-- postpone: Record a failed attempt.
UPDATE webhook_deliveries SET lease_until = NULL, status = :status, error = :error,
  due_at = clock_timestamp() + make_interval(secs => :wait_s),
  state = CASE WHEN {too_late} THEN 'failed' ELSE 'pending' END,
  ended_at = CASE WHEN {too_late} THEN clock_timestamp() END
WHERE id = :id AND state = 'pending' AND attempts = :attempts

-- delete_old: Delete deliveries that finished long ago.
DELETE FROM webhook_deliveries
WHERE state <> 'pending' AND ended_at < clock_timestamp() - make_interval(secs => :kept_s)
