-- rollouts: A page of rollouts, newest first.
SELECT r.ord, {record} FROM rollouts r WHERE r.run_id = :run_id AND (r.batch, r.ord) < (:batch, :ord)
ORDER BY r.batch DESC, r.ord DESC LIMIT :limit

-- recorded: All rollouts with their texts, in the order of the requests.
SELECT {detail}, p.system, p."user" FROM rollouts r JOIN prompts p ON p.digest = r.prompt_digest
WHERE r.run_id = :id ORDER BY r.batch, r.ord

-- rollout: A rollout with its texts.
SELECT {detail}, coalesce(p.system, '') AS system, coalesce(p."user", '(pruned)') AS "user"
FROM rollouts r LEFT JOIN prompts p ON p.digest = r.prompt_digest WHERE r.id = :id

-- exported: Rollouts with their texts, problem and policy, in the order of the requests.
SELECT r.ord, {export}, coalesce(t.system, '') AS system, coalesce(t."user", '') AS "user",
  p.slug || '@' || p.version AS problem, a.slug || '@' || a.version AS policy, a.definition ->> 'prompt_format' AS prompt_format
FROM rollouts r JOIN runs u ON u.id = r.run_id JOIN problems p ON p.id = u.problem_id
  JOIN policies a ON a.id = r.policy_id LEFT JOIN prompts t ON t.digest = r.prompt_digest
WHERE r.run_id = :id AND (r.batch, r.ord) > (:batch, :ord) ORDER BY r.batch, r.ord LIMIT 200

-- batches: Ordinal, first candidate and size of each batch.
SELECT (data ->> 'batch')::bigint AS batch, (data ->> 'first')::bigint AS first, (data ->> 'proposals')::int AS size
FROM events WHERE run_id = :id AND kind = 'batch.proposed'

-- has_advice: True if prompts of a run have advice or hints.
SELECT advice <> '{}'::jsonb FROM run_progress WHERE run_id = :id

-- events: Events in order.
SELECT run_id, seq, kind, data, at FROM events WHERE run_id = :id AND seq > :after ORDER BY seq LIMIT :limit

-- learning_steps: Data of training steps, newest first.
SELECT data FROM events WHERE run_id = :id AND kind = 'learning.step' ORDER BY seq DESC LIMIT :limit
