-- ended: The next ended runs without a summary, with the confirmed claim to the target; to the unlock target if :target
-- is NULL.
SELECT r.ord, r.run_id, r.entrant, r.problem, p.state, p.reason, p.evaluations, p.tokens, p.cost, p.evaluated, p.failed,
  p.duplicates, p.final, c.evaluations AS hit, c.tokens AS hit_tokens
FROM tournament_runs r JOIN run_progress p ON p.run_id = r.run_id
  LEFT JOIN claims c ON c.run_id = r.run_id AND c.state = 'confirmed'
    AND CASE WHEN cast(:target AS text) IS NULL THEN c.unlock ELSE c.target = :target END
WHERE r.tournament_id = :id AND NOT r.ended AND p.state IN ('completed', 'failed', 'cancelled')
ORDER BY r.ord LIMIT :limit

-- candidates: Candidates of runs, in order.
SELECT c.run_id, a.slug || '@' || a.version AS policy, c.rollout_id, c.rewards, c.scalar, c.spent_evaluations,
  c.duplicate_of IS NOT NULL AS duplicate
FROM candidates c LEFT JOIN policies a ON a.id = c.policy_id
WHERE c.run_id = ANY(:runs) ORDER BY c.run_id, c.number

-- rollouts: Completions of runs that gave candidates, in order.
SELECT o.run_id, a.slug || '@' || a.version AS policy, o.completion_tokens AS tokens, o.mean_logprob,
  o.reason IS NOT NULL AS unreadable
FROM rollouts o JOIN policies a ON a.id = o.policy_id
WHERE o.run_id = ANY(:runs) AND o.role IN ('propose', 'mutate') ORDER BY o.run_id, o.batch, o.ord

-- objectives: Objectives and weights of problems.
SELECT slug || '@' || version AS name, definition -> 'objectives' AS objectives,
  definition -> 'weights' AS weights FROM problems
WHERE slug || '@' || version = ANY(:names) AND slug = ANY(:slugs)
  AND project_id = (SELECT project_id FROM tournaments WHERE id = :id)

-- next_revision: Begin a revision: one writer at a time, so that a reader that has seen it has missed nothing before it.
UPDATE tournaments SET revision = revision + 1 WHERE id = :id RETURNING revision

-- store: Store summaries of ended runs.
UPDATE tournament_runs r SET ended = true, revision = :revision, state = s.state, reason = s.reason, numbers = s.numbers
FROM jsonb_populate_recordset(CAST(NULL AS tournament_runs), cast(:rows AS jsonb)) s
WHERE r.tournament_id = :id AND r.ord = s.ord AND NOT r.ended
