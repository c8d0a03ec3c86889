-- lock: Lock the progress of a run. Every transaction takes this lock first.
-- The columns are named, since a prepared statement breaks when a newer version adds one to ``*``.
SELECT run_id, state, {fields}, {running_seconds} AS seconds_now, clock_timestamp() AS now
FROM run_progress WHERE run_id = :run_id FOR UPDATE

-- finish: Lock the progress of a run, then finish one of its units, in one round trip.
-- The payload is dropped, because the candidates table holds the programs.
WITH run AS MATERIALIZED ({lock}),
finished AS (
  UPDATE work SET state = 'done', lease_token = NULL, lease_until = NULL, payload = '{}'::jsonb FROM run
  WHERE work.id = :id AND work.run_id = run.run_id AND work.lease_token = :token AND work.state = 'leased'
  RETURNING work.reserved_evaluations AS unit_evaluations, work.reserved_tokens AS unit_tokens)
SELECT run.*, finished.* FROM run LEFT JOIN finished ON true

-- save: Save the progress of a run.
UPDATE run_progress SET state = :state, seconds = :seconds, running_since = :running_since,
  started_at = coalesce(started_at, :started_at), finished_at = coalesce(finished_at, :finished_at), {assignments}
WHERE run_id = :run_id
