-- run_state: State of a run, its clock, whether its prompts have advice, and the latest candidate of an author unless a
-- prompt has shown it for a change; it is looked for among the last 1,000 candidates.
SELECT state, reason, batches, evaluations, advice <> '{}'::jsonb AS hinted, {left} AS evaluations_left,
  (SELECT CASE WHEN NOT EXISTS (SELECT FROM asks a WHERE a.run_id = g.run_id AND a.parents[1] = c.number)
     THEN c.number END
   FROM candidates c JOIN rollouts r ON r.id = c.rollout_id
   WHERE c.run_id = g.run_id AND c.number > g.numbers - 1000 AND r.author = :author
   ORDER BY c.number DESC LIMIT 1) AS own
FROM run_progress g WHERE run_id = :id

-- left: Evaluations that the budget of a run leaves besides those in flight; NULL without a limit.
budget_evaluations - evaluations - reserved_evaluations

-- independent: Whether no tournament or campaign started a run, and its policy.
SELECT own, policy_id FROM runs WHERE id = :id

-- insert_asks: Keep what the answers of prompts will inherit, once if the answer to the commit is lost.
INSERT INTO asks (id, run_id, role, island, parents, inspirations, system, "user", seed, advice)
SELECT a.id, :run_id, a.role, a.island, a.parents, a.inspirations, a.system, a."user", a.seed, a.advice
FROM jsonb_populate_recordset(NULL::asks, cast(:asks AS jsonb)) AS a
ON CONFLICT (id) DO NOTHING

-- asks: The prompts of a run that a request answers.
SELECT id, role, island, parents, inspirations, system, "user", seed, advice FROM asks
WHERE run_id = :run_id AND id = ANY(:ids)

-- ask_answers: The answers of some prompts that were admitted, by the ids of the prompts.
SELECT id, answer FROM proposal_answers WHERE run_id = :run_id AND id = ANY(:ids)

-- insert_receipts: Keep the receipts of a request with an idempotency key or of an answer to a prompt, or a hint's number.
INSERT INTO proposal_answers (id, run_id, answer) VALUES (:id, :run_id, cast(:receipts AS jsonb))

-- receipts: The receipts of an earlier request, or the number of its hint.
SELECT answer FROM proposal_answers WHERE id = :id

-- result: What became of a candidate, the run's best, and how many evaluations are queued before a waiting one.
SELECT g.state, g.reason, g.numbers, g.confirmed AS reached, {left} AS evaluations_left,
  g.best_number, g.best, g.best_targets,
  (SELECT c.id FROM candidates c WHERE c.run_id = g.run_id AND c.number = :number) AS candidate_id,
  EXISTS (SELECT FROM elites e WHERE e.run_id = g.run_id AND e.number = :number) AS elite,
  (SELECT jsonb_object_agg(c.target, c.number) FROM claims c WHERE c.run_id = g.run_id AND c.state = 'confirmed')
    AS confirmed,
  ARRAY(SELECT c.target FROM claims c WHERE c.run_id = g.run_id AND c.number = :number AND c.state = 'pending'
    ORDER BY c.target) AS confirming,
  (SELECT :number - (w.payload ->> 'first')::bigint + coalesce((SELECT sum(greatest(o.reserved_evaluations, 1))
      FROM work o WHERE o.kind IN ('evaluate', 'confirm') AND o.state IN ('ready', 'leased') AND o.id < w.id), 0)
    {waiting_unit}) AS ahead
FROM run_progress g WHERE g.run_id = :run_id

-- unsettled: Proposals that wait for an evaluation, and candidates that wait for a repeated one.
SELECT generate_series((w.payload ->> 'first')::bigint,
    (w.payload ->> 'first')::bigint + jsonb_array_length(w.payload -> 'proposals') - 1) AS number
FROM work w WHERE w.run_id = :run_id AND w.kind = 'evaluate' AND w.lane = :lane
  AND w.state IN ('ready', 'leased', 'parked')
UNION SELECT c.number FROM claims c WHERE c.run_id = :run_id AND c.state = 'pending'
ORDER BY number LIMIT :limit
