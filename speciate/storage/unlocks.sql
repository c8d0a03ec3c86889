-- claims: Reached targets with their cost, policies and candidate; conditions follow.
SELECT c.run_id, r.problem_id, p.slug AS problem, p.version AS problem_version, r.policy_id, a.slug AS policy,
  a.version AS policy_version, b.slug AS mutator, b.version AS mutator_version,
  {policy_names} AS ensemble, r.strategy, (r.spec ->> 'seed')::bigint AS seed, c.target, c.unlock,
  p.definition ->> 'kind' = 'in_process' AS forgeable, {attested} AS attested,
  -- A repetition claims a target only for a seed program whose first evaluation had no rewards.
  c.state, c.number, d.id AS candidate_id, d.role IN ('seed', 'repeat') AS by_seed,
  c.evaluations, c.tokens, c.seconds, r.sources, c.at,
  CASE WHEN o.author IS NOT NULL THEN e.slug || '@' || e.version END AS proposed_by, o.author, o.model,
  CASE WHEN e.definition -> 'lineage' IS NOT NULL AND r.spec ->> 'learning' IS NOT NULL AND e.id <> r.policy_id
    THEN e.slug || '@' || e.version END AS learned
FROM claims c JOIN runs r ON r.id = c.run_id JOIN problems p ON p.id = r.problem_id
  JOIN policies a ON a.id = r.policy_id LEFT JOIN policies b ON b.id = r.mutator_id
  JOIN candidates d ON d.run_id = c.run_id AND d.number = c.number
  LEFT JOIN rollouts o ON o.id = d.rollout_id LEFT JOIN policies e ON e.id = o.policy_id

-- page: A page of claims, newest run first and within a run the cheapest first.
{claims}{conditions} ORDER BY c.run_id DESC, c.evaluations, c.target LIMIT :limit

-- policies: Identity of the policies of run r; the order of an ensemble's members does not matter.
coalesce(nullif({policy_names}, '{}'), ARRAY[r.policy_id::text, {mutator}::text])

-- is_first: True if no earlier claim of the same policies and strategy reached this target of the problem version.
NOT EXISTS (SELECT FROM claims c2 JOIN runs r2 ON r2.id = c2.run_id
  WHERE r2.problem_id = r.problem_id AND r2.deleted_at IS NULL AND r2.strategy = r.strategy
  AND c2.target = c.target AND c2.state = 'confirmed'
  AND (c2.at, c2.run_id) < (c.at, c.run_id)
  AND (SELECT {policies} FROM runs r WHERE r.id = r2.id) = {policies})

-- cheapest: The claim with the fewest evaluations of every target.
SELECT DISTINCT ON (target) * FROM ({claims}{conditions}) claimed ORDER BY target, evaluations, at, run_id

-- history: The latest claims, and those that took fewer evaluations than every earlier one.
SELECT * FROM (
  SELECT claimed.*, count(*) OVER () AS total,
    row_number() OVER (ORDER BY at DESC, run_id DESC, target DESC) AS age,
    min(evaluations) OVER (ORDER BY at, run_id, target ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS fewest
  FROM ({claims}{conditions}) claimed
) ranked
WHERE age <= :latest OR fewest IS NULL OR evaluations < fewest ORDER BY at, run_id, target

-- tried_runs: Runs on a problem version with their policies.
-- An ensemble has no policy of its own: runs.policy_id is its first member, which depends on the order.
SELECT r.id, r.strategy, CASE WHEN {alone} THEN a.slug || '@' || a.version END AS policy,
  CASE WHEN {alone} THEN b.slug || '@' || b.version END AS mutator, {policy_names} AS ensemble
FROM runs r JOIN policies a ON a.id = r.policy_id LEFT JOIN policies b ON b.id = {mutator}
WHERE r.problem_id = :id AND r.deleted_at IS NULL

-- attempts: What policies and strategies spent on a problem version.
SELECT tried.policy, tried.mutator, tried.ensemble, tried.strategy, count(*) AS runs,
  sum(evaluations)::bigint AS evaluations, sum(tokens)::bigint AS tokens, sum({running_seconds})::float8 AS seconds
FROM ({tried_runs}) tried JOIN run_progress g ON g.run_id = tried.id
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4

-- reached: Runs of policies and strategies that reached each target.
SELECT tried.policy, tried.mutator, tried.ensemble, tried.strategy, c.target, count(*) AS runs
FROM ({tried_runs}) tried JOIN claims c ON c.run_id = tried.id AND c.state = 'confirmed'
GROUP BY 1, 2, 3, 4, 5

-- records: Feasible candidates better in an objective than all before them, newest first; ties are no records.
-- Higher is better for :sign 1, lower for -1.
SELECT run_id, number, id AS candidate_id, role, value, strategy, seed, policy, spent_evaluations AS evaluations, at FROM (
  SELECT c.run_id, c.number, c.id, c.role, c.rewards[:at] AS value, c.spent_evaluations, c.created_at AS at, r.strategy,
    (r.spec ->> 'seed')::bigint AS seed, a.slug || '@' || a.version AS policy,
    max(:sign * c.rewards[:at]) OVER (ORDER BY c.created_at, c.run_id, c.number
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM candidates c JOIN runs r ON r.id = c.run_id LEFT JOIN policies a ON a.id = c.policy_id
  WHERE r.problem_id = :id AND r.deleted_at IS NULL AND c.rewards IS NOT NULL AND c.duplicate_of IS NULL
    AND (c.stopped_at <> ALL(cast(:early AS text[]))) IS NOT FALSE{feasible}
) improving
WHERE before IS NULL OR :sign * value > before ORDER BY at DESC, run_id DESC, number DESC LIMIT :limit
