-- kept: Numbers of the candidates of a run that keep their texts.
SELECT number FROM claims WHERE run_id = :id UNION SELECT number FROM elites WHERE run_id = :id
UNION SELECT best_number FROM run_progress WHERE run_id = :id AND best_number IS NOT NULL

-- kept_rollouts: Rollouts that keep their texts.
SELECT rollout_id FROM candidates WHERE run_id = :id AND rollout_id IS NOT NULL AND number IN ({kept})

-- due: Unpruned runs that ended before a time.
SELECT r.id, p.slug AS problem, g.state, g.finished_at, g.numbers
FROM run_progress g JOIN runs r ON r.id = g.run_id JOIN problems p ON p.id = r.problem_id
WHERE g.pruned_at IS NULL AND g.state = ANY(:states) AND g.finished_at < :before
  -- Other runs of a campaign may learn from its completions.
  AND NOT EXISTS (SELECT FROM campaign_runs k JOIN campaigns c ON c.id = k.campaign_id
    WHERE k.run_id = r.id AND c.finished_at IS NULL)
ORDER BY g.finished_at

-- weigh: Stored size of the texts of a run that can be deleted.
SELECT (
    SELECT coalesce(sum(pg_column_size(program) + pg_column_size(artifacts)
      + coalesce(pg_column_size(failure_detail), 0)), 0)
    FROM candidates WHERE run_id = :id AND number NOT IN ({kept})
  ) + (SELECT coalesce(sum(pg_column_size(program)), 0) FROM run_seeds WHERE run_id = :id) + (
    SELECT coalesce(sum(pg_column_size(completion) + coalesce(pg_column_size(logprobs), 0)
      + coalesce(pg_column_size(token_ids), 0)), 0)
    FROM rollouts WHERE run_id = :id AND id NOT IN ({kept_rollouts})
  ) + (SELECT coalesce(sum(pg_column_size(system) + pg_column_size("user")), 0) FROM asks WHERE run_id = :id) + (
    SELECT coalesce(sum(pg_column_size(program) + coalesce(pg_column_size(measured), 0)
      + coalesce(pg_column_size(result), 0)), 0)
    FROM external_evaluations WHERE run_id = :id)

-- prune_candidates: Delete the texts of the candidates of a run.
UPDATE candidates SET program = '', failure_detail = NULL, artifacts = '{"pruned": "the texts are gone"}'
WHERE run_id = :id AND (program <> '' OR failure_detail IS NOT NULL) AND number NOT IN ({kept})

-- prune_results: Delete results without a program: another run would reuse them instead of evaluating it.
DELETE FROM results x USING candidates c
WHERE x.run_id = :id AND c.run_id = x.run_id AND c.number = x.number
  AND c.program = ''

-- prune_rollouts: Delete the texts of the rollouts of a run.
UPDATE rollouts SET completion = '', logprobs = NULL, token_ids = NULL
WHERE run_id = :id AND completion <> '' AND id NOT IN ({kept_rollouts})

-- prune_inputs: Delete the seed programs of a run, the prompts it handed out, and what was evaluated outside.
WITH asked AS (DELETE FROM asks WHERE run_id = :id),
evaluated AS (DELETE FROM external_evaluations WHERE run_id = :id)
UPDATE run_seeds SET program = '' WHERE run_id = :id

-- mark_pruned: Record that runs are pruned.
UPDATE run_progress SET pruned_at = clock_timestamp(), revision = revision + 1 WHERE run_id = ANY(:ids)

-- unused_prompts: Prompts of runs that only pruned rollouts refer to.
SELECT prompt_digest FROM rollouts WHERE run_id = ANY(:ids)
EXCEPT SELECT prompt_digest FROM rollouts o JOIN run_progress g ON g.run_id = o.run_id
WHERE (g.pruned_at IS NULL AND g.run_id <> ALL(:ids)) OR o.completion <> ''

-- lock_prompts: Block concurrent inserts of rollouts, which may refer to an unused prompt.
LOCK TABLE prompts IN SHARE ROW EXCLUSIVE MODE

-- limit_lock: Wait for a lock only briefly.
SET LOCAL lock_timeout = '2s'

-- delete_prompts: Delete prompts that no rollout refers to.
DELETE FROM prompts
WHERE digest = ANY(:digests) AND digest NOT IN (SELECT prompt_digest FROM rollouts WHERE id > :since)
