-- elites: The archive of an island, or of all if it is NULL.
SELECT number, island, cell, fitness, rewards, error, evaluations FROM elites
WHERE run_id = :id AND (island = :island OR CAST(:island AS int) IS NULL) ORDER BY island, cell

-- members: Candidates by number.
SELECT {individual} FROM candidates WHERE run_id = :id AND number = ANY(:numbers)

-- lineage: Number, first parent and rewards of every candidate.
SELECT number, coalesce(parents[1], 0) AS parent, rewards FROM candidates WHERE run_id = :id AND role <> 'repeat'
ORDER BY number

-- latest: The latest candidates, newest first.
SELECT {result}, '' AS program FROM candidates WHERE run_id = :id AND role <> 'repeat'
ORDER BY number DESC LIMIT :most

-- standing: Counters of evaluations, the best candidate, the first seed program with rewards, and confirmed targets.
-- Seed programs are evaluated again only while nothing has rewards, so no other candidate has them before the seed.
SELECT evaluations, reserved_evaluations, granted, best_number, r.spec -> 'budget' AS budget, (
  SELECT CASE WHEN role = 'seed' THEN number END FROM candidates
  WHERE run_id = :id AND rewards IS NOT NULL AND role <> 'repeat' ORDER BY number LIMIT 1) AS seed,
  (SELECT jsonb_object_agg(c.target, c.number) FROM claims c WHERE c.run_id = :id AND c.state = 'confirmed') AS confirmed
FROM run_progress p JOIN runs r ON r.id = p.run_id WHERE p.run_id = :id

-- completions: Completions that gave one candidate.
SELECT c.number, r.completion FROM candidates c JOIN rollouts r ON r.id = c.rollout_id
WHERE c.run_id = :id AND c.number = ANY(:numbers) AND r.answers <= 1

-- carried: The output that candidate :to received; that of the best candidate if :to is NULL.
SELECT number, artifacts ->> CAST(:output AS text) AS output FROM candidates
WHERE run_id = :id AND artifacts ->> CAST(:output AS text) IS NOT NULL AND number = CASE WHEN CAST(:to AS bigint) IS NULL
  THEN (SELECT best_number FROM run_progress WHERE run_id = :id)
  ELSE (SELECT carried_from FROM candidates WHERE run_id = :id AND number = :to) END

-- duplicate: What a repetition of a program needs of the candidate that had it first.
{candidate} FROM candidates WHERE run_id = :id AND duplicate_of IS NULL

-- duplicates: Candidates with one of the texts or syntax trees, newest first; each is found through its own index.
SELECT program_hash AS digest, {duplicate} AND program_hash = ANY(:hashes)
UNION ALL
SELECT shape AS digest, {duplicate} AND shape = ANY(:shapes)
ORDER BY number DESC
