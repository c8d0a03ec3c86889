-- cancel_rest: Cancel the unfinished work of a run, or all of it but confirmations.
-- They keep the token of their lease, by which the cost of an answer that is on its way is charged.
UPDATE work SET state = 'cancelled', reason = :reason, payload = '{}'::jsonb
WHERE run_id = :run_id AND state IN ('ready', 'leased', 'parked') AND NOT (:spare AND kind = 'confirm')

-- write: Insert work and events, and save the progress, in one statement: a round trip costs as much as the write.
WITH added_work AS (
  INSERT INTO work (id, run_id, kind, state, lane, ordinal, payload, reserved_evaluations, dispatched_at)
  SELECT w.id, :run_id, w.kind, 'ready', w.lane, w.ordinal, w.payload, w.reserved_evaluations,
    CASE WHEN :dispatch THEN clock_timestamp() END
  FROM jsonb_populate_recordset(NULL::work, cast(:works AS jsonb)) AS w),
added_events AS (
  INSERT INTO events (run_id, seq, kind, data) SELECT :run_id, e.seq, e.kind, e.data
  FROM jsonb_populate_recordset(NULL::events, cast(:new_events AS jsonb)) AS e)
{save_progress}

-- save_claim: Store a claim or its new state.
INSERT INTO claims (run_id, target, number, state, unlock, evaluations, tokens, seconds)
VALUES (:run_id, :target, :number, :state, :unlock, :evaluations, :tokens, :seconds)
ON CONFLICT (run_id, target, number) DO UPDATE SET state = excluded.state

-- place: Place candidates in the cells that they improve.
INSERT INTO elites AS e (run_id, island, cell, number, fitness, rewards)
SELECT :run_id, r.island, r.cell, r.number, r.fitness, r.rewards
FROM jsonb_populate_recordset(NULL::elites, cast(:rows AS jsonb)) AS r
ON CONFLICT (run_id, island, cell)
  DO UPDATE SET number = excluded.number, fitness = excluded.fitness, rewards = excluded.rewards
  WHERE excluded.fitness > e.fitness
RETURNING e.island, e.cell, e.number

-- open_confirmations: Number of unfinished confirmations.
SELECT count(*) FROM work WHERE run_id = :run_id AND kind = 'confirm' AND state IN ('ready', 'leased', 'parked')

-- claims: Claims of a candidate.
SELECT target, number, evaluations, tokens, seconds, unlock, state FROM claims
WHERE run_id = :run_id AND number = :number

-- record_repeats: Store what repeats measured and the targets that they missed.
-- Duplicates have the result of the candidate, and so miss what it misses.
UPDATE candidates SET refuted = refuted | (targets & :refuted), repeats = cast(:repeats AS jsonb)
WHERE run_id = :run_id AND (number = :number OR duplicate_of = :number)

-- earliest_claimant: Earliest unrefuted candidate that meets a target.
SELECT number, spent_evaluations, spent_tokens, spent_seconds FROM candidates
WHERE run_id = :run_id AND targets <> 0 AND targets & :bit <> 0 AND refuted & :bit = 0 AND duplicate_of IS NULL
ORDER BY spent_evaluations LIMIT 1

-- release_cells: Remove a candidate from the cells of a target.
DELETE FROM elites WHERE run_id = :run_id AND number = :number AND starts_with(cell, :prefix)

-- meeting: Candidates that meet one of some targets, unless it was refuted.
SELECT number, island, rewards, targets & ~refuted AS met FROM candidates
WHERE run_id = :run_id AND targets <> 0 AND targets & ~refuted & :bits <> 0 AND duplicate_of IS NULL
ORDER BY number

-- elites: Candidates of the archive, by their bounds if rewards are noisy.
SELECT DISTINCT c.number, e.rewards, c.targets & ~c.refuted AS met
FROM elites e JOIN candidates c ON c.run_id = e.run_id AND c.number = e.number WHERE e.run_id = :run_id ORDER BY c.number

-- dispatch_ready: Mark the ready work of a run as sent.
UPDATE work SET dispatched_at = clock_timestamp(), resends = 0 WHERE run_id = :run_id AND state = 'ready'
RETURNING id, kind, attempt
