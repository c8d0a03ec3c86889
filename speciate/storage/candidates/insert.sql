-- insert_rollouts: Insert the rollouts of a batch, and the prompts that no earlier rollout had.
WITH new_prompts AS (
  INSERT INTO prompts (digest, system, "user")
  SELECT digest, system, "user" FROM jsonb_populate_recordset(CAST(NULL AS prompts), cast(:prompts AS jsonb))
  ON CONFLICT (digest) DO NOTHING
)
INSERT INTO rollouts (run_id, work_id, batch, {rollout_columns})
SELECT :run_id, :work_id, :batch, {rollout_columns}
FROM jsonb_populate_recordset(CAST(NULL AS rollouts), cast(:rows AS jsonb))

-- insert_candidates: Insert the candidates of a batch; each refers to its rollout by the position in the batch.
INSERT INTO candidates (run_id, work_id, rollout_id, {candidate_columns})
SELECT :run_id, :work_id,
  (SELECT o.id FROM rollouts o WHERE o.run_id = :run_id AND o.batch = :batch AND o.ord = cast(item ->> 'rollout' AS int)),
  {candidate_columns}
FROM jsonb_array_elements(cast(:rows AS jsonb)) AS item
  CROSS JOIN LATERAL jsonb_populate_record(CAST(NULL AS candidates), item) AS candidate

-- reusable_results: Results of programs in other runs. Retention deletes a program before its result.
SELECT x.program_hash, c.run_id, c.number, {evaluation}
FROM results x
  JOIN runs r ON r.id = x.run_id AND r.deleted_at IS NULL
  JOIN candidates c ON c.run_id = x.run_id AND c.number = x.number
WHERE x.evaluator_digest = :digest AND x.tier = :tier AND x.program_hash = ANY(:hashes) AND c.program <> ''

-- keep_results: Offer results to other runs, unless a candidate with the program does whose run is not deleted.
-- The order avoids deadlocks. Rows are in conflict only if they were measured at the same time, or are of a deleted run.
INSERT INTO results AS x (evaluator_digest, tier, program_hash, run_id, number)
SELECT DISTINCT ON (program_hash, tier) :digest, tier, program_hash, CAST(:run_id AS uuid), number
FROM jsonb_populate_recordset(CAST(NULL AS results), cast(:rows AS jsonb)) ORDER BY program_hash, tier, number
ON CONFLICT (evaluator_digest, tier, program_hash) DO UPDATE SET run_id = excluded.run_id, number = excluded.number
  WHERE EXISTS (SELECT FROM runs r WHERE r.id = x.run_id AND r.deleted_at IS NOT NULL)
