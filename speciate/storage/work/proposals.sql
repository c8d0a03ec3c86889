-- run_state: State of a run, its clock, and whether its prompts have advice.
SELECT state, reason, batches, evaluations, advice <> '{}'::jsonb AS hinted FROM run_progress WHERE run_id = :id

-- independent: True for runs that no tournament or campaign started.
SELECT own FROM runs WHERE id = :id

-- insert_asks: Keep what the answers of prompts will inherit.
INSERT INTO asks (id, run_id, role, island, parents, inspirations, system, "user", seed, advice)
SELECT a.id, :run_id, a.role, a.island, a.parents, a.inspirations, a.system, a."user", a.seed, a.advice
FROM jsonb_populate_recordset(NULL::asks, cast(:asks AS jsonb)) AS a

-- asks: The prompts of a run that a request answers.
SELECT id, role, island, parents, inspirations, system, "user", seed, advice FROM asks
WHERE run_id = :run_id AND id = ANY(:ids)

-- insert_receipts: Keep the receipts of a request with an idempotency key.
INSERT INTO proposal_answers (id, run_id, answer) VALUES (:id, :run_id, cast(:receipts AS jsonb))

-- receipts: The receipts of an earlier request.
SELECT answer FROM proposal_answers WHERE id = :id

-- result: What became of a candidate.
SELECT g.state, g.numbers, g.best_number = :number AS best,
  (SELECT c.id FROM candidates c WHERE c.run_id = g.run_id AND c.number = :number) AS candidate_id,
  EXISTS (SELECT FROM elites e WHERE e.run_id = g.run_id AND e.number = :number) AS elite,
  ARRAY(SELECT c.target FROM claims c WHERE c.run_id = g.run_id AND c.number = :number AND c.state = 'confirmed'
    ORDER BY c.target) AS confirmed,
  EXISTS (SELECT FROM claims c WHERE c.run_id = g.run_id AND c.number = :number AND c.state = 'pending') AS pending
FROM run_progress g WHERE g.run_id = :run_id
