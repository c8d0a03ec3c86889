-- waiting: Runs that wait for an engine, oldest first; a run that is stopping only waits for work in flight.
SELECT r.id, p.slug || '@' || p.version AS problem
FROM runs r JOIN run_progress g ON g.run_id = r.id JOIN problems p ON p.id = r.problem_id
WHERE g.state = 'running' AND g.stopping IS NULL AND r.spec ->> 'engine' IS NOT NULL AND r.project_id = :project AND r.deleted_at IS NULL
  AND (cardinality(cast(:engines AS text[])) = 0 OR r.spec ->> 'engine' = ANY(cast(:engines AS text[])))
  AND (cast(:run AS uuid) IS NULL OR r.id = :run)
  AND (cast(:tournament AS uuid) IS NULL
    OR EXISTS (SELECT FROM tournament_runs t WHERE t.run_id = r.id AND t.tournament_id = :tournament))
  AND NOT EXISTS (
    SELECT FROM engine_sessions s WHERE s.run_id = r.id AND s.state = 'open' AND s.lease_until > clock_timestamp())
ORDER BY r.id LIMIT 16

-- earlier: Sessions of a run that are open or count as attempts.
SELECT id, state, lease_until > clock_timestamp() AS held, reserved_tokens FROM engine_sessions
WHERE run_id = :run_id AND state IN ('open', 'lapsed')

-- begin: Begin a session.
INSERT INTO engine_sessions (id, run_id, attempt, holder, version, lease_until)
VALUES (:id, :run_id, :attempt, :holder, :version, clock_timestamp() + make_interval(secs => :lease_s))
RETURNING lease_until

-- run_of: Run of a session.
SELECT s.run_id FROM engine_sessions s JOIN runs r ON r.id = s.run_id WHERE s.id = :id AND r.project_id = :project

-- session: State of a session, locked.
SELECT state, reserved_tokens, requests FROM engine_sessions WHERE id = :id FOR UPDATE

-- evaluations_left: Evaluations that the budget of a run leaves besides those in flight; NULL without a limit.
SELECT budget_evaluations - evaluations - reserved_evaluations FROM run_progress WHERE run_id = :run_id

-- renew: Renew the lease of an open session.
UPDATE engine_sessions SET lease_until = clock_timestamp() + make_interval(secs => :lease_s)
WHERE id = :id AND state = 'open' RETURNING lease_until

-- reserve: Reserve the tokens of a request.
UPDATE engine_sessions SET reserved_tokens = reserved_tokens + :tokens,
  requests = requests || jsonb_build_object(cast(:request_id AS text), cast(:ordinal AS bigint))
WHERE id = :id

-- extend: Reserve further tokens for a request.
UPDATE engine_sessions SET reserved_tokens = reserved_tokens + :tokens
WHERE id = :id AND state = 'open' AND jsonb_exists(requests, cast(:request_id AS text))

-- book: End a request, and so its reservation; no row if it or its session has ended before.
UPDATE engine_sessions SET reserved_tokens = reserved_tokens - :tokens, requests = requests - cast(:request_id AS text)
WHERE id = :id AND state = 'open' AND jsonb_exists(requests, cast(:request_id AS text))

-- end: End an open session.
UPDATE engine_sessions SET state = :state, reason = :reason, processor_s = :processor_s, reserved_tokens = 0,
  refused = cast(:refused AS jsonb)
WHERE id = :id AND state = 'open'
