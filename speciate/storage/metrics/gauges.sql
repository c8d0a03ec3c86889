-- runs: Totals of runs by state.
SELECT state, count(*) AS runs, sum(evaluated) AS ok, sum(evaluations) AS evaluations, sum(tokens) AS tokens,
  sum({running_seconds}) AS seconds, count(*) FILTER (WHERE state = 'running' AND alarm IS NOT NULL) AS alarmed,
  sum(budget_evaluations - evaluations) FILTER (WHERE state = 'running') AS evaluations_left,
  sum(budget_tokens - tokens) FILTER (WHERE state = 'running') AS tokens_left,
  sum(greatest(0, budget_seconds - seconds)) FILTER (WHERE state = 'running') AS seconds_left
FROM run_progress GROUP BY state

-- failures: Failed candidates by kind.
SELECT f.key AS kind, sum(f.value::bigint) AS failures FROM run_progress, jsonb_each_text(failures) f GROUP BY 1

-- unlocks: Number of confirmed unlocks.
SELECT count(*) FROM claims WHERE unlock AND state = 'confirmed'

-- work: Unfinished work by kind and state; that of paused runs is not waiting.
SELECT w.kind, w.state, count(*) AS units, max(extract(epoch FROM clock_timestamp() - w.created_at)) AS oldest_s,
  count(*) FILTER (WHERE w.state = 'leased' AND w.lease_until < clock_timestamp()) AS overdue
FROM work w JOIN run_progress p ON p.run_id = w.run_id
WHERE w.state IN ('ready', 'leased', 'parked') AND p.state = 'running' GROUP BY 1, 2

-- stalled: Number of stalled runs: every commit sets the clock of a run, so an old clock means no commits.
SELECT count(*) FROM run_progress p
WHERE p.state = 'running' AND NOT {waits_outside}
  AND (p.running_since < clock_timestamp() - make_interval(secs => :stall_s)
    OR 'run.stalled' = (SELECT e.kind FROM events e WHERE e.run_id = p.run_id AND e.seq = p.events))

-- reconciler_age: Seconds since the last pass of the reconciler.
SELECT extract(epoch FROM clock_timestamp() - alive_at) FROM reconciler WHERE id = 1
