-- evaluations: Units that evaluate.
w.kind IN ('evaluate', 'confirm')

-- choose: Ready evaluations, in the order in which runs get a slot; a candidate counts as its cores.
-- First the project with the fewest leased units, then the run; among equals the unit of the message, then the one
-- that has waited longest. Without rows the unit is no evaluation, or no longer ready.
WITH leased AS (
  SELECT w.run_id, r.project_id, sum(coalesce(cast(d.definition -> 'limits' ->> 'cores' AS integer), 1)) AS units
  FROM work w JOIN runs r ON r.id = w.run_id JOIN problems d ON d.id = r.problem_id
  WHERE w.state = 'leased' AND {evaluations} GROUP BY w.run_id, r.project_id),
waiting AS (
  SELECT DISTINCT ON (w.run_id) w.id, w.run_id, r.project_id, w.dispatched_at
  FROM work w JOIN runs r ON r.id = w.run_id JOIN run_progress p ON p.run_id = w.run_id
  WHERE w.state = 'ready' AND {evaluations} AND w.dispatched_at IS NOT NULL AND p.state = 'running'
  ORDER BY w.run_id, w.id <> :id, w.dispatched_at)
SELECT w.id, w.run_id, coalesce((SELECT units FROM leased WHERE leased.run_id = w.run_id), 0) AS of_run,
  (SELECT coalesce(sum(units), 0) FROM leased) AS taken,
  EXISTS (SELECT FROM run_progress p
    WHERE p.state = 'running' AND p.reason IS NULL AND p.run_id <> w.run_id
    AND EXISTS (SELECT FROM work o WHERE o.run_id = p.run_id AND o.state IN ('ready', 'leased'))
    AND p.run_id NOT IN (SELECT run_id FROM leased)) AS others
FROM waiting w
ORDER BY coalesce((SELECT sum(units) FROM leased WHERE leased.project_id = w.project_id), 0), of_run, w.id <> :id,
  w.dispatched_at

-- run: Run of a ready unit.
SELECT run_id FROM work WHERE id = :id AND state = 'ready'

-- longest: Longest of the latest evaluations of a run, in seconds.
SELECT max(wall_s)
FROM (SELECT wall_s FROM candidates WHERE run_id = :run_id ORDER BY number DESC LIMIT :recent) recent
