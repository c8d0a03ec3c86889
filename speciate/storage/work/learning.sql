-- learned: The learned version that a run uses.
SELECT a.id, a.definition, a.version
FROM run_progress p JOIN policies a ON a.id = cast(p.learning ->> 'policy_id' AS uuid) WHERE p.run_id = :run_id

-- rollouts: Completions of a group.
SELECT r.id, r.ord, r.token_ids, r.logprobs, p.system, p."user"
FROM rollouts r JOIN prompts p ON p.digest = r.prompt_digest
WHERE r.run_id = :run_id AND r.batch = :batch AND r.ord >= :first AND r.ord < :first + :size ORDER BY r.ord

-- rewards: Rewards of the candidates of a batch.
SELECT rollout_id, rewards FROM candidates WHERE run_id = :run_id AND number >= :number AND number < :number + :count
ORDER BY number

-- insert_version: Store a version of a policy.
INSERT INTO policies (id, project_id, slug, version, digest, definition)
VALUES (:id, :project_id, :slug, :version, :digest, cast(:definition AS jsonb))
