-- ended: Summaries of ended runs in one row of arrays: unpacking 80,000 rows would take longer than reading them.
-- The numbers have the server's binary format: a header before each array, the length before each number.
SELECT array_agg(problem) AS problems, array_agg(seed) AS seeds,
  array_agg(entrant) AS entrants, array_agg(state) AS states,
  string_agg(array_send(numbers), ''::bytea) AS numbers
FROM tournament_runs
WHERE tournament_id = :id AND revision <= :now AND ord > :first AND ord <= :first + :most

-- reasons: Why runs have no result.
SELECT problem, seed, entrant, state, reason FROM tournament_runs
WHERE tournament_id = :id AND revision <= :now AND state <> 'completed'

-- runs: The next planned runs with their results.
SELECT ord, problem, seed, entrant, run_id, state, reason, numbers FROM tournament_runs
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
