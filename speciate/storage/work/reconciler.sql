-- expired: Units whose lease has expired.
SELECT id, run_id FROM work WHERE state = 'leased' AND lease_until < clock_timestamp()
  AND (CAST(:runs AS uuid[]) IS NULL OR run_id = ANY(:runs)) ORDER BY id LIMIT 256

-- lock_expired: Lock a unit if its lease is still expired.
SELECT kind, lane, ordinal, attempt, payload, reserved_evaluations, reserved_tokens FROM work
WHERE id = :id AND state = 'leased' AND lease_until < clock_timestamp() FOR UPDATE

-- retry: Make a unit ready for another attempt.
UPDATE work SET state = 'ready', lease_token = NULL, lease_until = NULL, reserved_tokens = 0,
  dispatched_at = clock_timestamp(), resends = 0
WHERE id = :id

-- reset_attempts: Make a unit ready as if it had never been leased.
UPDATE work SET state = 'ready', lease_token = NULL, lease_until = NULL, attempt = 0, dispatched_at = NULL
WHERE id = :id

-- take_over: Lease a unit to the reconciler.
UPDATE work SET lease_token = :token, lease_until = clock_timestamp() + interval '30 seconds' WHERE id = :id

-- poison: Abandon a unit.
UPDATE work SET state = 'poisoned', lease_token = NULL, lease_until = NULL, reason = :reason WHERE id = :id

-- resend: Send lost messages again.
-- After 2, 4, 8, … 64 seconds: soon after the broker lost one, rarely if the queue is just long.
UPDATE work w SET dispatched_at = clock_timestamp(), resends = resends + 1 FROM run_progress p
WHERE p.run_id = w.run_id AND p.state = 'running' AND w.state = 'ready'
  AND (w.dispatched_at IS NULL OR w.dispatched_at < clock_timestamp() - make_interval(secs => power(2,
          least(w.resends + 1, 6))))
  AND (CAST(:runs AS uuid[]) IS NULL OR w.run_id = ANY(:runs))
RETURNING w.id, w.run_id, w.kind, w.attempt

-- overdue: Running runs whose budget of seconds is spent.
SELECT run_id FROM run_progress WHERE state = 'running' AND budget_seconds <= {running_seconds}
  AND (CAST(:runs AS uuid[]) IS NULL OR run_id = ANY(:runs))

-- exclude_downtime: Charge runs that were running when the service, or a process without one, stopped until that time.
UPDATE run_progress p SET running_since = clock_timestamp(),
  -- A service goes on with the runs of a killed process, which has a sign of life of its own.
  seconds = p.seconds + greatest(0, extract(epoch FROM (SELECT min(alive_at) FROM reconciler
    WHERE id IN (:id, 2) AND alive_at >= p.running_since) - p.running_since))
WHERE p.state = 'running' AND (CAST(:runs AS uuid[]) IS NULL OR p.run_id = ANY(:runs))
  AND NOT EXISTS (SELECT FROM reconciler WHERE id = :id AND alive_at >= clock_timestamp() - make_interval(secs => :gap_s))

-- abandon: Charge running runs until a time, and from now on.
UPDATE run_progress SET running_since = clock_timestamp(),
  seconds = seconds + greatest(0, extract(epoch FROM CAST(:alive_at AS timestamptz) - running_since))
WHERE state = 'running' AND run_id = ANY(:runs)

-- end_leases: Expire the leases of runs.
UPDATE work SET lease_until = clock_timestamp() WHERE state = 'leased' AND run_id = ANY(:runs)

-- stalled: Running runs that have committed nothing for long and were not reported.
-- Every commit sets the clock of a run. The last event of a reported run is the report.
SELECT p.run_id FROM run_progress p LEFT JOIN events e ON e.run_id = p.run_id AND e.seq = p.events
WHERE p.state = 'running' AND p.running_since < clock_timestamp() - make_interval(secs => :stall_s)
  AND e.kind IS DISTINCT FROM 'run.stalled' AND NOT {waits_outside} LIMIT 256

-- unfinished_work: Unfinished work of a run by state.
SELECT count(*) FILTER (WHERE state = 'ready') AS ready, count(*) FILTER (WHERE state = 'leased') AS leased,
  count(*) FILTER (WHERE state = 'parked') AS parked, string_agg(DISTINCT kind, ' and ') AS kinds
FROM work WHERE run_id = :run_id AND state IN ('ready', 'leased', 'parked')

-- beat: Record that the reconciler is alive; true if one of other queries finds a row.
INSERT INTO reconciler (id, alive_at) VALUES (:id, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET alive_at = clock_timestamp() RETURNING {any_row}
