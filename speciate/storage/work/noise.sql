-- trials: All evaluations of some programs, and of every program that was evaluated several times.
SELECT coalesce(c.duplicate_of, c.number) AS program, c.trial, coalesce(c.first, c.rewards) AS rewards,
  c.failure, c.failure_reason, '' AS failure_detail
FROM candidates c
WHERE c.run_id = :run_id AND (c.number = ANY(:numbers) OR c.duplicate_of IS NOT NULL
  OR c.number IN (SELECT d.duplicate_of FROM candidates d WHERE d.run_id = :run_id AND d.duplicate_of IS NOT NULL))
  AND (c.rewards IS NOT NULL OR (c.duplicate_of IS NOT NULL AND c.trial IS NOT NULL))
ORDER BY c.number

-- empty: Empty the archive.
DELETE FROM elites WHERE run_id = :run_id

-- fill: Fill the archive, and record what is known of its programs; ``first`` keeps what their own evaluation measured.
WITH filled AS (
  INSERT INTO elites (run_id, island, cell, number, fitness, rewards, error, evaluations)
  SELECT :run_id, e.island, e.cell, e.number, e.fitness, e.rewards, e.error, e.evaluations
  FROM jsonb_populate_recordset(NULL::elites, cast(:elites AS jsonb)) AS e)
UPDATE candidates c SET targets = k.targets | c.refuted,
  first = CASE WHEN k.evaluations > 1 THEN coalesce(c.first, c.rewards) ELSE c.first END,
  rewards = CASE WHEN k.evaluations > 1 THEN k.rewards ELSE c.rewards END,
  scalar = CASE WHEN k.evaluations > 1 THEN k.scalar ELSE c.scalar END,
  error = CASE WHEN k.evaluations > 1 THEN k.error END,
  evaluations = CASE WHEN k.evaluations > 1 THEN k.evaluations END
FROM jsonb_populate_recordset(NULL::candidates, cast(:known AS jsonb)) AS k
WHERE c.run_id = :run_id AND c.number = k.number
  AND (k.evaluations > 1 OR c.targets IS DISTINCT FROM k.targets | c.refuted)
