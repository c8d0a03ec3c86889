-- advice: Number of the advice in the prompt of a candidate.
(SELECT r.advice FROM rollouts r WHERE r.id = rollout_id) AS advice

-- unmeasured: Names of the objectives that an evaluator did not measure.
artifacts ->> {not_measured} AS unmeasured

-- texts: What lists leave out: the words that the author of a proposal sent beside its program.
{advice}, (SELECT nullif(left(btrim(regexp_replace(regexp_replace(r.completion,
    '```.*?(```|$)', '', 'g'), '<<<<<<< SEARCH.*?(>>>>>>> REPLACE|$)', '', 'g'), E' \n\r\t'), 20000), '')
  FROM rollouts r WHERE r.id = rollout_id AND r.author IS NOT NULL) AS rationale

-- candidates: A page of the candidates of a run.
SELECT {record}, {unmeasured}, {advice}, {best} AS best FROM candidates WHERE run_id = :run_id{conditions}
ORDER BY {order} LIMIT :limit

-- candidate: A candidate by id.
SELECT {detail}, {unmeasured}, {texts} FROM candidates WHERE id = :id

-- candidate_of: A candidate by run and number.
SELECT {detail}, {unmeasured}, {texts} FROM candidates WHERE run_id = :run_id AND number = :number

-- export: The next candidates of a run.
SELECT {detail}, {unmeasured}, {texts} FROM candidates WHERE run_id = :run_id AND number > :last ORDER BY number LIMIT 200

-- labels: Labels of a run for its export.
SELECT name AS run_name, tags AS run_tags FROM runs WHERE id = :run_id

-- ancestors: The nearest ancestors of a candidate, newest first.
-- Parents have lower numbers than their children, so the ancestor with the highest number is visited next, and the query
-- reads no more candidates than it returns.
WITH RECURSIVE lineage (step, number, waiting) AS (
  SELECT 0, CAST(NULL AS bigint), parents FROM candidates WHERE id = :id
  UNION ALL
  SELECT step + 1, c.number, ARRAY(SELECT DISTINCT n FROM unnest(waiting || c.parents) n WHERE n < c.number)
  FROM lineage JOIN candidates c ON c.run_id = :run_id AND c.number = (SELECT max(n) FROM unnest(waiting) n)
  WHERE step < :limit
)
SELECT {record}, {unmeasured}, {advice} FROM candidates WHERE run_id = :run_id AND number IN (SELECT number FROM lineage)
ORDER BY number DESC

-- bounds: What is known of the programs in the archive of a run with noisy rewards; no rows without noise.
SELECT DISTINCT ON (number) number, rewards FROM elites WHERE run_id = :run_id AND error IS NOT NULL ORDER BY number

-- ranked: What ranks candidates, by number, and which one is the best of the run, whose number :noisy adds.
-- Its rewards are those of the run's record: evaluations after the end of a noisy run correct them.
SELECT c.id, c.number, CASE WHEN c.number = p.best_number THEN p.best ELSE c.rewards END AS rewards, c.scalar,
  c.targets & ~c.refuted AS met, p.best_number IS NOT DISTINCT FROM c.number AS best
FROM run_progress p JOIN candidates c ON c.run_id = p.run_id
WHERE p.run_id = :run_id AND c.number = ANY(CAST(:numbers AS bigint[]) || CASE WHEN :noisy THEN p.best_number END)

-- programs: Programs by number.
SELECT number, program FROM candidates WHERE run_id = :run_id AND number = ANY(:numbers)

-- archive: The elite of every cell.
SELECT e.island, e.cell, e.number, e.fitness, e.rewards, c.id, c.scalar, c.targets & ~c.refuted AS met
FROM elites e JOIN candidates c ON c.run_id = e.run_id AND c.number = e.number
WHERE e.run_id = :run_id ORDER BY e.island, e.cell

-- waiting_batch: The unfinished evaluation whose batch holds a candidate.
SELECT w.state, w.payload {waiting_unit}

-- answers: Candidates that completions gave, by number.
SELECT rollout_id, repeats, refuted, {answer} FROM candidates
WHERE run_id = :run_id AND number = ANY(:numbers) AND rollout_id IS NOT NULL ORDER BY number
