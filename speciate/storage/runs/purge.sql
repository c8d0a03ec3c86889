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

-- remove_run: Remove a deleted run.
DELETE FROM runs WHERE id = :id AND deleted_at < :before RETURNING project_id, id::text AS name

-- remove_problem: Remove a deleted problem.
DELETE FROM problems WHERE id = :id AND deleted_at < :before RETURNING project_id, slug || '@' || version AS name

-- remove_policy: Remove a deleted policy, and its API key unless another one uses it.
WITH gone AS (DELETE FROM policies WHERE id = :id AND deleted_at < :before RETURNING *),
unused AS (
  DELETE FROM policy_keys k USING gone WHERE k.id = gone.definition ->> 'api_key_id' AND NOT EXISTS
    (SELECT FROM policies p WHERE p.id <> gone.id AND p.definition ->> 'api_key_id' = k.id))
SELECT project_id, slug || '@' || version AS name FROM gone

-- span: Smallest and largest number in a table of a run.
SELECT
  (SELECT min({column}) FROM {table} WHERE run_id = :id) AS first,
  (SELECT max({column}) FROM {table} WHERE run_id = :id) AS last

-- delete_range: Delete a range of a table of a run.
DELETE FROM {table} WHERE run_id = :id AND {column} >= :first AND {column} < :end

-- lock: Lock the progress of a run.
SELECT FROM run_progress WHERE run_id = :id FOR UPDATE

-- make_absent: Delete the progress of a deleted run.
-- Every reader joins it: without it the run is absent and cannot be restored.
DELETE FROM run_progress WHERE run_id = :id AND EXISTS (SELECT FROM runs WHERE id = :id AND deleted_at < :before)

-- is_absent: True if a run has no progress.
SELECT NOT EXISTS (SELECT FROM run_progress WHERE run_id = :id)

-- delete_results: Delete the results of a range of candidates, by primary key, since a run may have a million.
DELETE FROM results x USING candidates c, runs r, problems p
WHERE c.run_id = :id AND c.number >= :first AND c.number < :end AND r.id = c.run_id AND p.id = r.problem_id
  AND x.run_id = c.run_id AND x.evaluator_digest = r.project_id::text || '/' || p.evaluator_digest AND x.tier = c.tier
  AND x.program_hash = c.program_hash

-- delete_work: Delete some finished work, which is in no index but that of its id, which begins with the time.
DELETE FROM work WHERE id IN (SELECT id FROM work WHERE run_id = :id AND id >= :floor ORDER BY id LIMIT 5000)

-- created_at: Creation time of a run.
SELECT created_at FROM runs WHERE id = :id

-- delete_keys: Delete the idempotency keys of a resource.
DELETE FROM idempotency_keys WHERE resource_id = :id

-- orphaned_prompts: Prompts that no rollout refers to.
SELECT digest FROM prompts p WHERE NOT EXISTS (SELECT FROM rollouts r WHERE r.prompt_digest = p.digest)
