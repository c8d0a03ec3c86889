-- evaluator_needs: What a worker needs for the problem of a run: the parts that ``required_capabilities`` reads.
jsonb_build_object('language', d.definition -> 'language', 'image', d.definition -> 'image',
  'writable', d.definition -> 'writable') AS definition

-- running: Running runs.
run_progress p JOIN runs r ON r.id = p.run_id JOIN problems d ON d.id = r.problem_id WHERE p.state = 'running'

-- language: Its problem has a language of its own.
jsonb_typeof(d.definition -> 'language') = 'object'

-- needs: What the problems of all running runs need.
SELECT DISTINCT {evaluator_needs} FROM {running} AND {language}

-- unevaluated: What the candidates of a run need, if they wait for an external evaluator and none is leased.
SELECT max(e.capabilities) FROM external_evaluations e
WHERE e.run_id = p.run_id AND e.state <> 'done' HAVING bool_and(e.state = 'ready' OR e.lease_until < clock_timestamp())

-- idle_runs: Runs, or run :run_id alone, that have a reason or were not committed lately, the longest idle first.
-- A commit sets the clock of a run: one that works is left alone, and workers announce themselves in the meantime.
SELECT p.run_id, {evaluator_needs}, p.reason, {language} AS own_language, ({unevaluated}) AS unevaluated,
  d.slug || '@' || d.version AS problem
FROM {running}
  AND (p.reason IS NOT NULL OR p.running_since < clock_timestamp() - make_interval(secs => :after_s))
  AND (p.run_id = :run_id OR CAST(:run_id AS uuid) IS NULL)
ORDER BY p.running_since
