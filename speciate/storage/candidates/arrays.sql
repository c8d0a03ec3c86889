-- packed: The next candidates of a run in one value of binary numbers, with their failures.
-- Missing values are filled in, so that all rows have the same length; numbers have the high byte first.
SELECT string_agg(packed, '' ORDER BY spent_evaluations) AS packed,
  array_agg(failed ORDER BY spent_evaluations) AS failure
FROM (
  SELECT spent_evaluations, int8send(number) || int8send(spent_evaluations) || int8send(spent_tokens)
    || float8send(spent_seconds) || float8send(extract(epoch FROM created_at)::float8) || int8send(island)
    || int8send(coalesce(parents[1], 0)) || int8send(targets) || int8send((duplicate_of IS NOT NULL)::int::int8)
    || int8send((role = 'seed')::int::int8)
    || array_send(coalesce(rewards, array_fill('NaN'::float8, ARRAY[:d]))) AS packed,
    coalesce(failure || ': ' || failure_reason, failure, '') AS failed
  FROM candidates WHERE run_id = :id AND spent_evaluations > :after ORDER BY spent_evaluations LIMIT :most
) AS recorded

-- refuted: Claims of a run that a second evaluation refuted.
SELECT number, target FROM claims WHERE run_id = :id AND state = 'refuted' ORDER BY number, target
