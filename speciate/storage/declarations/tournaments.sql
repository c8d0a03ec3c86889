-- tournaments: Tournaments with the counts of their runs.
SELECT d.*, n.planned, n.started, n.ended FROM tournaments d CROSS JOIN LATERAL (
  SELECT count(*) AS planned, count(r.run_id) AS started, count(*) FILTER (WHERE r.ended) AS ended
  FROM tournament_runs r WHERE r.tournament_id = d.id) n

-- by_id: A tournament by id.
{tournaments} WHERE d.id = :id

-- page: A page of tournaments, newest first.
{tournaments}{conditions} ORDER BY id DESC LIMIT :limit

-- pending: Running tournaments, others with an open run, and paused ones without anything to resume.
SELECT id FROM tournaments t WHERE state = 'running' OR EXISTS (
  SELECT FROM tournament_runs r WHERE r.tournament_id = t.id AND NOT r.ended AND r.run_id IS NOT NULL)
  OR state = 'paused' AND NOT EXISTS (SELECT FROM tournament_runs r WHERE r.tournament_id = t.id AND NOT r.ended)
ORDER BY id

-- amendments: The extensions of a tournament, oldest first.
SELECT extension, ended_runs, created_at FROM tournament_amendments WHERE tournament_id = :id ORDER BY ord

-- add_amendment: Record an extension.
INSERT INTO tournament_amendments (tournament_id, ord, extension, ended_runs)
VALUES (:id, :ord, cast(:extension AS jsonb), :ended_runs)

-- add_runs: Append runs to the plan.
INSERT INTO tournament_runs (tournament_id, ord, entrant, problem, seed)
SELECT :id, :first + p.ord, p.entrant, p.problem, p.seed
FROM unnest(cast(:entrants AS text[]), cast(:problems AS text[]), cast(:seeds AS bigint[]))
  WITH ORDINALITY AS p (entrant, problem, seed, ord)

-- active_runs: Started runs that have not ended.
SELECT r.run_id, r.entrant, p.state, p.reason, p.state = 'running' AND p.live = 0 AS waits,
  EXISTS (SELECT FROM engine_sessions s WHERE s.run_id = r.run_id AND s.state = 'open'
    AND s.lease_until > clock_timestamp()) AS held
FROM tournament_runs r JOIN run_progress p ON p.run_id = r.run_id
WHERE r.tournament_id = :id AND NOT r.ended ORDER BY r.ord

-- next_runs: The next runs of the plan to start, without those of some entrants.
SELECT ord, entrant, problem, seed FROM tournament_runs
WHERE tournament_id = :id AND NOT ended AND run_id IS NULL AND entrant <> ALL(cast(:without AS text[])) ORDER BY ord LIMIT :limit

-- attach: Record the run that was started for a position of the plan.
UPDATE tournament_runs SET run_id = :run_id WHERE tournament_id = :id AND ord = :ord

-- open_work: The first run of the plan that has not ended.
SELECT ord FROM tournament_runs WHERE tournament_id = :id AND NOT ended ORDER BY ord LIMIT 1

-- adopt_paused: Let runs that were paused for another reason, such as an unavailable endpoint, resume with the tournament.
UPDATE run_progress SET reason = :reason WHERE state = 'paused' AND run_id IN (
  SELECT run_id FROM tournament_runs WHERE tournament_id = :id AND NOT ended)
