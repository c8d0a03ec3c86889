-- park: Set a unit aside and store its requests; no row if its lease is lost.
WITH parked AS (
  UPDATE work SET state = 'parked', lease_token = NULL, lease_until = NULL, dispatched_at = NULL, attempt = attempt - 1
  WHERE id = :id AND lease_token = :token AND state = 'leased' RETURNING id, run_id),
requested AS (
  INSERT INTO external_evaluations
    (id, run_id, work_id, number, program, program_hash, seed, measured, result, state, capabilities)
  SELECT r.id, p.run_id, p.id, r.number, r.program, r.program_hash, r.seed, r.measured, r.result,
    CASE WHEN r.result IS NULL THEN 'ready' ELSE 'done' END, cast(:capabilities AS text[])
  FROM parked p, jsonb_populate_recordset(NULL::external_evaluations, cast(:rows AS jsonb)) AS r
  ON CONFLICT (work_id, program_hash, seed) DO NOTHING)
SELECT id FROM parked

-- results: Results that a unit has so far.
SELECT program_hash, seed, result FROM external_evaluations WHERE work_id = :id AND state = 'done'

-- problem: Definition of a problem.
SELECT definition FROM problems WHERE id = :id

-- offered: Evaluations that may be leased: a lapsed lease is offered again.
-- The unit must still be parked: its run may have ended.
FROM external_evaluations e JOIN work w ON w.id = e.work_id JOIN run_progress g ON g.run_id = e.run_id
  JOIN runs r ON r.id = e.run_id JOIN problems p ON p.id = r.problem_id
WHERE (e.state = 'ready' OR (e.state = 'leased' AND e.lease_until < clock_timestamp())) AND w.state = 'parked'
  AND g.state = 'running' AND r.deleted_at IS NULL

-- acquire: Lease evaluations, oldest first.
UPDATE external_evaluations SET state = 'leased', attempt = attempt + 1, lease_token = gen_random_uuid(),
  lease_until = clock_timestamp() + make_interval(secs => :lease_s), holder = :holder
WHERE id IN (
  SELECT e.id {offered} AND e.attempt < :most AND r.project_id = :project
    AND (cast(:problem AS uuid) IS NULL OR p.id = :problem) AND (cast(:run AS uuid) IS NULL OR r.id = :run)
    AND e.capabilities <@ cast(:capabilities AS text[])
  ORDER BY e.id LIMIT :count FOR UPDATE OF e SKIP LOCKED)
RETURNING id, lease_token, lease_until, attempt, run_id, number, program, seed, measured

-- unleased: Number of evaluations that wait, by problem version and capabilities.
SELECT p.slug || '@' || p.version AS problem, e.capabilities, count(*) AS waiting {offered}
  AND r.project_id = :project AND (cast(:problem AS uuid) IS NULL OR p.id = :problem)
  AND (cast(:run AS uuid) IS NULL OR r.id = :run)
GROUP BY p.id, e.capabilities ORDER BY p.id

-- problems_of_runs: Problem versions of runs.
SELECT r.id, r.problem_id, p.slug || '@' || p.version AS name FROM runs r JOIN problems p ON p.id = r.problem_id
WHERE r.id = ANY(:runs)

-- renew: Renew leases; zero seconds give the evaluation back, which counts as no attempt.
UPDATE external_evaluations e SET lease_until = clock_timestamp() + make_interval(secs => :lease_s),
  attempt = e.attempt - CASE WHEN :lease_s = 0 THEN 1 ELSE 0 END,
  state = CASE WHEN :lease_s = 0 THEN 'ready' ELSE 'leased' END,
  lease_token = CASE WHEN :lease_s <> 0 THEN e.lease_token END
FROM jsonb_to_recordset(cast(:leases AS jsonb)) AS l(id uuid, lease uuid), work w, run_progress g, runs r
WHERE e.id = l.id AND e.lease_token = l.lease AND e.state = 'leased' AND w.id = e.work_id AND w.state = 'parked'
  AND g.run_id = e.run_id AND g.state IN ('running', 'paused') AND r.id = e.run_id AND r.project_id = :project
RETURNING e.id, e.lease_until

-- lock_evaluations: Lock evaluations, with the state of their units.
SELECT e.id, e.work_id, e.run_id, e.state, e.lease_token, e.measured, e.result, w.state AS unit, r.problem_id
FROM external_evaluations e JOIN work w ON w.id = e.work_id JOIN runs r ON r.id = e.run_id
WHERE e.id = ANY(:ids) AND r.project_id = :project ORDER BY e.id FOR UPDATE OF e

-- store_results: Store results and drop the programs.
UPDATE external_evaluations e SET state = 'done', result = b.result, lease_until = NULL, program = ''
FROM jsonb_to_recordset(cast(:results AS jsonb)) AS b(id uuid, result jsonb) WHERE e.id = b.id

-- lock_units: Lock units before their evaluations are counted: the last of two submissions then sees both.
SELECT id FROM work WHERE id = ANY(:units) ORDER BY id FOR UPDATE

-- make_ready: Make the units ready that wait for no more evaluations.
UPDATE work w SET state = 'ready', dispatched_at = CASE WHEN g.state = 'running' THEN clock_timestamp() END,
  resends = 0
FROM run_progress g
WHERE w.id = ANY(:units) AND w.state = 'parked' AND g.run_id = w.run_id
  AND NOT EXISTS (SELECT FROM external_evaluations e WHERE e.work_id = w.id AND e.state <> 'done')
RETURNING w.id, w.run_id, w.kind, w.attempt, g.state

-- lapsed: Lock evaluations whose leases lapsed too often.
SELECT e.id, e.work_id {offered} AND e.attempt >= :most ORDER BY e.id LIMIT 256 FOR UPDATE OF e SKIP LOCKED
