-- exists: True if a run is stored.
SELECT EXISTS (SELECT FROM runs WHERE id = :id)

-- insert: Store a run and its progress.
WITH added AS (
  INSERT INTO runs
    (id, project_id, own, problem_id, policy_id, mutator_id, strategy, spec, sources, estimate, name, tags, note)
  VALUES (:id, :project_id, :own, :problem_id, :policy_id, :mutator_id, :strategy, cast(:spec AS jsonb),
    cast(:sources AS jsonb), cast(:estimate AS jsonb), :name, cast(:tags AS text[]), :note)
  RETURNING id)
INSERT INTO run_progress (run_id, state, budget_evaluations, budget_tokens, budget_seconds)
SELECT id, 'created', cast(:evaluations AS bigint), cast(:tokens AS bigint), cast(:seconds AS float8) FROM added
RETURNING clock_timestamp()

-- lock_versions: Versions of a run, locked so that none is deleted before the run refers to it.
WITH p AS (
  SELECT 'problem' AS what, slug, version, archived_at, deleted_at FROM problems WHERE id = :problem FOR KEY SHARE),
a AS (
  SELECT 'policy' AS what, slug, version, archived_at, deleted_at FROM policies
  WHERE id = ANY(:policies) ORDER BY id FOR KEY SHARE)
SELECT * FROM p UNION ALL SELECT * FROM a

-- touch: Lock the progress of a run and count a commit.
UPDATE run_progress SET revision = revision + 1 WHERE run_id = :id RETURNING revision, events AS last_event, state

-- unended: Runs that have not ended.
SELECT run_id FROM run_progress WHERE state IN ('created', 'running', 'paused')

-- labels: Labels of a run.
SELECT name, tags, note FROM runs WHERE id = :id

-- set_labels: Set the labels of a run.
UPDATE runs SET name = :name, tags = cast(:tags AS text[]), note = :note WHERE id = :id

-- parts: What a run consists of, and if it is archived or deleted.
SELECT own, archived_at, deleted_at, problem_id, policy_id, mutator_id,
  ARRAY(SELECT policy_id FROM run_policies WHERE run_id = :id) AS member_ids
FROM runs WHERE id = :id

-- uses: True if the policy writes for a run.
(r.policy_id = :policy OR r.mutator_id IS NOT DISTINCT FROM :policy
  OR EXISTS (SELECT FROM run_policies e WHERE e.run_id = r.id AND e.policy_id = :policy))

-- observed: The runs that are most like a new one, newest first, with what the answers of their policies cost.
WITH known AS (
  SELECT r.id, (r.spec ->> 'lanes')::int AS lanes, g.evaluations, g.failed, {running_seconds} AS seconds,
    4 * {uses}::int + 2 * (p.slug = :problem)::int + (r.strategy = :strategy)::int AS alike
  FROM runs r JOIN run_progress g ON g.run_id = r.id JOIN problems p ON p.id = r.problem_id
  WHERE r.project_id = :project AND r.deleted_at IS NULL AND g.pruned_at IS NULL AND g.rollouts > 0
    AND ({uses} OR (p.slug = :problem AND g.tokens > 0)))
SELECT k.id AS run, k.alike, k.evaluations, k.failed, k.seconds::float8 AS seconds, k.lanes, o.completions, o.calls,
  o.prompt_tokens, o.completion_tokens, f.bytes AS first_bytes
FROM known k JOIN LATERAL (SELECT count(*) AS completions, count(*) FILTER (WHERE prompt_tokens > 0) AS calls,
    sum(prompt_tokens)::bigint AS prompt_tokens, sum(completion_tokens)::bigint AS completion_tokens
  FROM rollouts WHERE run_id = k.id AND role IN ('propose', 'mutate') AND (k.alike < 4 OR policy_id = :policy)) o ON true
  JOIN LATERAL (SELECT octet_length(t.system || t."user") AS bytes FROM rollouts c
    JOIN prompts t ON t.digest = c.prompt_digest
  WHERE c.run_id = k.id AND (k.alike < 4 OR c.policy_id = :policy) ORDER BY c.batch, c.ord LIMIT 1) f ON true
WHERE k.alike = (SELECT max(alike) FROM known) ORDER BY k.id DESC LIMIT 10

-- offer_again: Let the leases of a process that scored with a function of its own lapse: it has ended.
UPDATE external_evaluations SET lease_until = clock_timestamp(), attempt = attempt - 1
WHERE run_id = :run_id AND state = 'leased' AND EXISTS (SELECT FROM unnest(capabilities) c WHERE c LIKE :callable)
