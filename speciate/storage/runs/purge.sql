-- due_runs: Runs that were deleted before a time, with the condition of the partial index.
SELECT id FROM runs WHERE deleted_at < :before AND (archived_at IS NOT NULL OR deleted_at IS NOT NULL)
ORDER BY deleted_at

-- due_problems: Problems that were deleted before a time and that nothing refers to.
SELECT id FROM problems p
WHERE deleted_at < :before AND NOT EXISTS (SELECT FROM runs r WHERE r.problem_id = p.id)
  AND NOT EXISTS (SELECT FROM problem_set_members m WHERE m.problem_id = p.id)

-- due_policies: Policies that were deleted before a time and that nothing refers to.
-- The rollouts of the run that learned a version name it, which no index finds.
SELECT id FROM policies p
WHERE deleted_at < :before AND NOT EXISTS (SELECT FROM runs r WHERE r.policy_id = p.id OR r.mutator_id = p.id)
  AND NOT EXISTS (SELECT FROM run_policies e WHERE e.policy_id = p.id)
  AND NOT EXISTS (SELECT FROM runs r WHERE r.id = cast(p.definition -> 'lineage' ->> 'run' AS uuid))

-- remove_run: Remove a deleted run with all its rows, and the keys of the requests that proposed its candidates.
WITH gone AS (DELETE FROM runs WHERE id = :id AND deleted_at < :before RETURNING project_id, id),
unused AS (
  DELETE FROM idempotency_keys k USING gone, proposal_answers a WHERE a.run_id = gone.id AND k.resource_id = a.id)
SELECT project_id, id::text AS name FROM gone

-- remove_problem: Remove a deleted problem.
DELETE FROM problems WHERE id = :id AND deleted_at < :before RETURNING project_id, slug || '@' || version AS name

-- remove_policy: Remove a deleted policy, and its API key unless another one uses it.
WITH gone AS (DELETE FROM policies WHERE id = :id AND deleted_at < :before RETURNING *),
unused AS (
  DELETE FROM policy_keys k USING gone WHERE k.id = gone.definition ->> 'api_key_id' AND NOT EXISTS
    (SELECT FROM policies p WHERE p.id <> gone.id AND p.definition ->> 'api_key_id' = k.id))
SELECT project_id, slug || '@' || version AS name FROM gone

-- delete_keys: Delete the idempotency keys of a resource.
DELETE FROM idempotency_keys WHERE resource_id = :id

-- orphaned_prompts: Prompts that no rollout refers to.
SELECT digest FROM prompts p WHERE NOT EXISTS (SELECT FROM rollouts r WHERE r.prompt_digest = p.digest)
