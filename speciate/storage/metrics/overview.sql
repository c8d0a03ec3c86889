-- counted: Runs that count: deleted ones do not.
(cast(:project AS uuid) IS NULL OR r.project_id = :project) AND r.deleted_at IS NULL

-- matrix: Runs and unlocks by problem version and policy.
SELECT r.problem_id, r.policy_id, {mutator} AS mutator_id, count(*) AS runs,
  count(c.evaluations) AS unlocked, min(c.evaluations) AS fewest
FROM runs r
  LEFT JOIN LATERAL (SELECT min(evaluations) AS evaluations FROM claims WHERE run_id = r.id AND unlock
    AND state = 'confirmed') c ON true
WHERE {alone} AND {counted} AND (cast(:policies AS uuid[]) IS NULL OR r.policy_id = ANY(:policies))
  AND (cast(:problem AS uuid) IS NULL OR r.problem_id = :problem)
GROUP BY 1, 2, 3

-- policy_runs: Totals of the runs of a policy alone.
SELECT count(*) AS runs, coalesce(sum(g.evaluated), 0) AS evaluated, coalesce(sum(g.failed), 0) AS failed,
  coalesce(sum(g.duplicates), 0) AS duplicates, coalesce(sum(g.tokens), 0) AS tokens,
  count(*) FILTER (WHERE EXISTS (SELECT FROM claims c WHERE c.run_id = r.id AND c.unlock
      AND c.state = 'confirmed')) AS unlocked
FROM runs r JOIN run_progress g ON g.run_id = r.id
WHERE r.policy_id = :id AND {alone} AND {mutator} IS NULL AND r.deleted_at IS NULL

-- policy_rollouts: Totals of the completions of a policy; a learned version answers in runs of its base.
SELECT count(*) AS rollouts, -sum(mean_logprob * completion_tokens) / nullif(sum(completion_tokens) FILTER (WHERE
      mean_logprob IS NOT NULL), 0) AS surprisal, avg(completion_tokens)::float8 AS tokens_a_rollout,
  avg(latency_s) AS latency_s, count(*) FILTER (WHERE finish_reason = 'length') AS cut
FROM rollouts
WHERE policy_id = :id AND run_id IN (SELECT id FROM runs WHERE deleted_at IS NULL
    AND (policy_id = :id OR mutator_id = :id OR id IN (SELECT run_id FROM run_policies WHERE policy_id = :id)
      OR policy_id = (SELECT b.id FROM policies p JOIN policies b ON b.project_id = p.project_id
        AND b.slug || '@' || b.version = p.definition -> 'lineage' ->> 'base' WHERE p.id = :id)))

-- bests: Runs that may hold the best candidate of their policies.
-- Unlocked ones first, then those that meet more targets, then harder ones.
SELECT x.*, c.id, c.scalar, a.slug AS policy, a.version AS policy_version, b.slug AS mutator,
  b.version AS mutator_version
FROM (SELECT o.*, g.best_number, g.best, g.best_targets, count(*) OVER w AS runs,
    row_number() OVER (w ORDER BY {best_unlocks} DESC, bit_count(CAST(g.best_targets AS bit(64))) DESC,
      g.best_targets DESC, o.run_id DESC) AS place
    FROM (SELECT r.id AS run_id, r.policy_id, {mutator} AS mutator_id, {policy_names} AS ensemble FROM runs r
      WHERE r.problem_id = :problem AND {counted}) o JOIN run_progress g ON g.run_id = o.run_id
    WHERE g.best_number IS NOT NULL WINDOW w AS (PARTITION BY o.policy_id, o.mutator_id, o.ensemble)) x
  JOIN candidates c ON c.run_id = x.run_id AND c.number = x.best_number JOIN policies a ON a.id = x.policy_id
  LEFT JOIN policies b ON b.id = x.mutator_id
WHERE x.place <= :runs ORDER BY x.place LIMIT :limit

-- candidates_for_best: Runs that may hold the best candidate of a problem, with what ranks it.
SELECT x.*, c.scalar, p.definition -> 'objectives' AS objectives, p.definition -> 'targets' AS targets
FROM (SELECT r.id AS run_id, r.problem_id, g.best_number, g.best, g.best_targets,
    row_number() OVER (PARTITION BY r.problem_id ORDER BY {best_unlocks} DESC,
      bit_count(CAST(g.best_targets AS bit(64))) DESC, g.best_targets DESC, r.id DESC) AS place
    FROM runs r JOIN run_progress g ON g.run_id = r.id
    WHERE {counted} AND r.problem_id = ANY(:ids) AND g.best_number IS NOT NULL) x
  JOIN candidates c ON c.run_id = x.run_id AND c.number = x.best_number JOIN problems p ON p.id = x.problem_id
WHERE x.place <= :runs

-- latest_with_best: The newest run of each policy that has a best candidate.
SELECT DISTINCT ON (r.policy_id) r.policy_id, r.id AS run_id FROM runs r JOIN run_progress g ON g.run_id = r.id
WHERE {counted} AND r.policy_id = ANY(:ids) AND g.best_number IS NOT NULL ORDER BY r.policy_id, r.id DESC

-- runs_by_state: Number of runs by state, without archived ones and those of tournaments and campaigns.
SELECT g.state, count(*) AS n FROM runs r JOIN run_progress g ON g.run_id = r.id
WHERE {counted} AND r.own AND r.archived_at IS NULL GROUP BY g.state

-- latest_unlocks: Latest claims in a state, without those of tournaments and campaigns.
{select_unlocks} WHERE c.state = :state AND r.own AND {counted} ORDER BY c.at DESC LIMIT :limit
