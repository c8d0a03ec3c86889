-- insert: Store a run and its progress; nothing is returned if an earlier attempt stored them.
WITH added AS (
  INSERT INTO runs
    (id, project_id, own, problem_id, policy_id, mutator_id, strategy, spec, sources, name, tags, note)
  VALUES (:id, :project_id, :own, :problem_id, :policy_id, :mutator_id, :strategy, cast(:spec AS jsonb),
    cast(:sources AS jsonb), :name, cast(:tags AS text[]), :note)
  ON CONFLICT DO NOTHING RETURNING id)
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
