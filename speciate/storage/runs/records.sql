-- document: The columns of a record, with their progress and problem, as one JSON document.
-- The driver and SQLAlchemy spend 3 µs of processor time on each column of a result.
r.id, r.project_id, (SELECT row_to_json(x) FROM (SELECT
  r.id, r.name, r.tags, r.note, r.problem_id, r.policy_id, r.mutator_id, r.spec, r.sources, r.estimate, r.created_at, r.archived_at,
  r.deleted_at, g.*,
  {running_seconds} AS seconds_now, p.slug AS problem, p.version AS problem_version,
  (SELECT count(*) FROM run_seeds s WHERE s.run_id = r.id) AS seeds,
  p.definition -> 'objectives' AS objectives, p.definition -> 'targets' AS targets,
  a.definition ->> 'kind' = 'external' AS external,
  ARRAY(SELECT q.slug || '@' || q.version FROM run_policies e JOIN policies q ON q.id = e.policy_id
    WHERE e.run_id = r.id AND e.role = 'external' ORDER BY e.ord) AS proposers,
  a.slug AS policy, a.version AS policy_version, b.slug AS mutator, b.version AS mutator_version,
  NOT r.own AS declared, CASE WHEN g.best_number IS NOT NULL THEN (SELECT CASE WHEN f.role = 'seed'
    THEN CASE WHEN f.number = g.best_number THEN g.best ELSE f.rewards END END
    FROM candidates f WHERE f.run_id = r.id AND f.rewards IS NOT NULL AND f.role <> 'repeat' ORDER BY f.number LIMIT 1)
    END AS seed_rewards,
  {ensemble_shares} AS shares, c.id AS best_id, c.scalar AS best_scalar,
  c.evaluations AS best_evaluations,
  CASE WHEN g.state = 'completed' AND g.best_number IS NULL THEN (SELECT json_build_array(f.failure, f.failure_reason,
    left(f.failure_detail, 10000)) FROM candidates f WHERE f.run_id = r.id AND f.number = 1 AND f.role = 'seed'
    AND f.failure IS NOT NULL) END AS seed_failure) AS x) AS document

-- tables: Runs with their progress, problem and policy.
runs r JOIN run_progress g ON g.run_id = r.id JOIN problems p ON p.id = r.problem_id
  JOIN policies a ON a.id = r.policy_id

-- joined: The same with the mutator and the best candidate.
({tables} LEFT JOIN policies b ON b.id = r.mutator_id
  LEFT JOIN candidates c ON c.run_id = r.id AND c.number = g.best_number)

-- get: A run.
SELECT {document} FROM {joined} WHERE r.id = :id

-- page: A page of runs.
-- Only the runs of the page are joined with their best candidates and the definitions of their problems.
WITH page AS (
  SELECT r.id AS page_id, {key} AS sort_key FROM {tables} WHERE {conditions}
  ORDER BY sort_key {direction}, r.id DESC LIMIT :limit)
SELECT {document}, sort_key, {read_at} AS read_at FROM page JOIN {joined} ON r.id = page_id ORDER BY sort_key {direction}, r.id DESC

-- best_key: Sort key of the best candidate: unlocks first, then the number of met targets, then the hardest one.
-- The best candidate meets the unlock target exactly if some candidate has an unlock claim that was not refuted.
(65 * 64 * {best_unlocks} + 64 * bit_count(CAST(g.best_targets AS bit(64)))
  + length(ltrim(CAST(g.best_targets AS bit(64))::text, '0')))

-- read_at: Time of the first page, which the cursors of a sorted list carry.
coalesce(cast(:read_at AS float8), extract(epoch FROM statement_timestamp())::float8)

-- duration_key: Sort key of the running seconds, for all pages at the time of the first one: no run passes a page twice.
(g.seconds + CASE WHEN g.state = 'running' THEN greatest({read_at} - extract(epoch FROM g.running_since), 0) ELSE 0 END)

-- uses_policy: True if the policy proposes, alone or in an ensemble.
(r.policy_id = :policy_id OR EXISTS (SELECT FROM run_policies e WHERE e.run_id = r.id AND e.policy_id = :policy_id
  AND e.role = 'propose'))

-- tagged: True if a run has all tags, with the condition of the partial index.
r.tags <> '{}' AND r.tags @> cast(:tags AS text[])

-- grouped: True for the runs of a tournament or campaign.
r.id IN (SELECT n.run_id FROM tournament_runs n JOIN tournaments d ON d.id = n.tournament_id
    WHERE :declaration IN (d.slug, CAST(d.id AS text)) AND d.project_id = r.project_id
  UNION ALL SELECT n.run_id FROM campaign_runs n JOIN campaigns d ON d.id = n.campaign_id
    WHERE :declaration IN (d.slug, CAST(d.id AS text)) AND d.project_id = r.project_id)

-- named: True if the name contains a text, with the condition of the partial index.
r.name <> '' AND strpos(lower(r.name), lower(:name)) > 0

-- work_in_flight: Unfinished work, oldest first.
SELECT id AS work_id, run_id, kind, state, attempt, lane,
  extract(epoch FROM lease_until - clock_timestamp())::float8 AS lease_seconds_left
FROM work w
WHERE state IN ('ready', 'leased', 'parked') AND (cast(:project AS uuid) IS NULL
  OR EXISTS (SELECT FROM runs r WHERE r.id = w.run_id AND r.project_id = :project))
ORDER BY id LIMIT :limit
