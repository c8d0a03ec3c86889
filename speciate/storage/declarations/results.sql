-- ended: Summaries of ended runs in one row of arrays: unpacking 80,000 rows would take longer than reading them.
-- The numbers have the server's binary format: a header before each array, the length before each number.
SELECT array_agg(problem) AS problems, array_agg(seed) AS seeds,
  array_agg(entrant) AS entrants, array_agg(state) AS states,
  string_agg(array_send({numbers}), ''::bytea) AS numbers
FROM tournament_runs
WHERE tournament_id = :id AND revision <= :now AND ord > :first AND ord <= :first + :most

-- numbers: The numbers of a run; runs of earlier versions lack the last ones.
numbers || array_fill('NaN'::float8, ARRAY[greatest(:width - cardinality(numbers), 0)])

-- reasons: Why runs have no result.
SELECT problem, seed, entrant, state, reason FROM tournament_runs
WHERE tournament_id = :id AND revision <= :now AND state <> 'completed'

-- runs: The next planned runs with their results.
SELECT ord, problem, seed, entrant, run_id, state, reason, {numbers} AS numbers FROM tournament_runs
WHERE tournament_id = :id AND ord > :last ORDER BY ord LIMIT :limit

-- problems: What a report says of its problems.
SELECT slug || '@' || version AS name, digest, evaluator_digest,
  definition ->> 'kind' = 'in_process' AS forgeable, {attested} AS attested,
  definition -> 'targets' AS targets
FROM problems
WHERE slug || '@' || version = ANY(:names) AND slug = ANY(:slugs)
  AND project_id = (SELECT project_id FROM tournaments WHERE id = :id)

-- policies: The policies of a tournament.
SELECT slug || '@' || version AS name, digest, definition FROM policies
WHERE slug || '@' || version = ANY(:names) AND slug = ANY(:slugs)
  AND project_id = (SELECT project_id FROM tournaments WHERE id = :id)

-- executions: Failures of the ended runs of each entrant by kind, and what their engines used.
WITH ended AS (
  SELECT r.entrant, r.run_id, p.failures FROM tournament_runs r JOIN run_progress p ON p.run_id = r.run_id
  WHERE r.tournament_id = :id AND r.ended),
failures AS (
  SELECT entrant, jsonb_object_agg(kind, number) AS failures FROM (
    SELECT e.entrant, f.key AS kind, sum(f.value::bigint) AS number
    FROM ended e, jsonb_each_text(e.failures) f GROUP BY e.entrant, f.key) k GROUP BY entrant),
refused AS (
  SELECT entrant, jsonb_object_agg(kind, number) AS refused FROM (
    SELECT e.entrant, f.key AS kind, sum(f.value::bigint) AS number
    FROM ended e JOIN engine_sessions s ON s.run_id = e.run_id, jsonb_each_text(s.refused) f
    GROUP BY e.entrant, f.key) k GROUP BY entrant),
sessions AS (
  SELECT e.entrant, sum(s.processor_s) AS processor_s, count(*) FILTER (WHERE s.state = 'lapsed') AS lost,
    array_agg(DISTINCT s.version) FILTER (WHERE s.version <> '') AS versions
  FROM ended e JOIN engine_sessions s ON s.run_id = e.run_id GROUP BY e.entrant)
SELECT n.entrant, coalesce(f.failures, '{}') AS failures, coalesce(s.versions, '{}') AS versions,
  coalesce(s.processor_s, 0) AS processor_s, coalesce(s.lost, 0) AS lost, coalesce(r.refused, '{}') AS refused
FROM (SELECT DISTINCT entrant FROM ended) n LEFT JOIN failures f USING (entrant) LEFT JOIN sessions s USING (entrant)
  LEFT JOIN refused r USING (entrant)
