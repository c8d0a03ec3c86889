-- quota: Limits of a project, and when its day began.
SELECT slug, concurrent_runs, evaluations_per_day, tokens_per_day,
  date_trunc('day', clock_timestamp(), 'UTC') AS today
FROM projects WHERE id = :id

-- lock_project: Lock a project.
SELECT FROM projects WHERE id = :id FOR NO KEY UPDATE

-- runs_under_way: Number of runs under way; one that is created and never started counts only briefly.
SELECT count(*) FROM runs r JOIN run_progress g ON g.run_id = r.id
WHERE r.project_id = :id AND (g.state = 'running' OR g.state = 'created'
    AND r.created_at > clock_timestamp() - interval '1 minute')

-- ended: Final states.
state IN ('completed', 'failed', 'cancelled')

-- used: What counts towards the quotas of a day: runs, tournaments and campaigns that were declared on it.
SELECT least(coalesce(sum(evaluations), 0), 9223372036854775807)::bigint AS evaluations,
  least(coalesce(sum(tokens), 0), 9223372036854775807)::bigint AS tokens FROM (
  SELECT CASE WHEN g.{ended} THEN g.evaluations + g.reserved_evaluations ELSE g.budget_evaluations END AS evaluations,
    CASE WHEN g.{ended} THEN g.tokens + g.reserved_tokens ELSE g.budget_tokens END AS tokens
  FROM runs r JOIN run_progress g ON g.run_id = r.id WHERE r.project_id = :id AND r.own AND r.created_at >= :today
  UNION ALL
  SELECT n.evaluations + n.open::numeric * coalesce(cast(t.declaration -> 'budget' ->> 'evaluations' AS bigint), 0),
    n.tokens + n.open::numeric * coalesce(cast(t.declaration -> 'budget' ->> 'tokens' AS bigint), 0)
  FROM tournaments t CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE t.{ended} IS FALSE AND NOT coalesce(g.{ended}, false)) AS open,
      coalesce(sum(g.evaluations + g.reserved_evaluations) FILTER (WHERE t.{ended} OR g.{ended}), 0) AS evaluations,
      coalesce(sum(g.tokens + g.reserved_tokens) FILTER (WHERE t.{ended} OR g.{ended}), 0) AS tokens
    FROM tournament_runs p LEFT JOIN run_progress g ON g.run_id = p.run_id WHERE p.tournament_id = t.id) n
  WHERE t.project_id = :id AND greatest(t.created_at,
    (SELECT max(a.created_at) FROM tournament_amendments a WHERE a.tournament_id = t.id)) >= :today
  UNION ALL
  SELECT CASE WHEN c.{ended} THEN n.evaluations ELSE cast(c.declaration ->> 'evaluations' AS bigint) END, n.tokens
  FROM campaigns c CROSS JOIN LATERAL (
    SELECT coalesce(sum(g.evaluations + g.reserved_evaluations), 0) AS evaluations,
      coalesce(sum(g.tokens + g.reserved_tokens), 0) AS tokens
    FROM campaign_runs p JOIN run_progress g ON g.run_id = p.run_id WHERE p.campaign_id = c.id) n
  WHERE c.project_id = :id AND c.id IS DISTINCT FROM cast(:besides AS uuid) AND c.created_at >= :today) AS declared

-- project_of_run: Project of a run.
SELECT project_id FROM runs WHERE id = :id

-- concurrent_runs: Number of runs that a project may have under way.
SELECT concurrent_runs FROM projects WHERE id = :id
