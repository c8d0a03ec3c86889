-- context: The immutable parts of a run.
SELECT r.project_id, r.spec, r.policy_id, r.mutator_id, p.definition AS problem, a.definition AS proposer, a.version,
  b.definition AS mutator,
  (SELECT jsonb_agg(jsonb_build_array(s.program, s.origin) ORDER BY s.ord) FROM run_seeds s WHERE s.run_id = r.id)
    AS seeds
FROM runs r JOIN problems p ON p.id = r.problem_id JOIN policies a ON a.id = r.policy_id
  LEFT JOIN policies b ON b.id = r.mutator_id
WHERE r.id = :id

-- scoring: Objectives, targets and weights of the problem of a run.
SELECT p.definition -> 'objectives' AS objectives, p.definition -> 'targets' AS targets,
  p.definition -> 'weights' AS weights
FROM runs r JOIN problems p ON p.id = r.problem_id WHERE r.id = :id

-- shares: Ensembles of a run.
SELECT e.role, e.policy_id, e.weight, a.definition FROM run_policies e JOIN policies a ON a.id = e.policy_id
WHERE e.run_id = :id AND e.role <> 'external' ORDER BY e.role, e.ord

-- record_proposer: Add a proposer from outside to the policies of a run, unless it is the run's own or was added.
INSERT INTO run_policies (run_id, role, ord, policy_id, weight)
SELECT :id, 'external', count(*), :policy, 1 FROM run_policies WHERE run_id = :id AND role = 'external'
HAVING NOT EXISTS (SELECT FROM runs WHERE id = :id AND policy_id = :policy)
  AND NOT EXISTS (SELECT FROM run_policies WHERE run_id = :id AND role = 'external' AND policy_id = :policy)

-- insert_share: Store a policy of an ensemble.
INSERT INTO run_policies (run_id, role, ord, policy_id, weight) VALUES (:run_id, :role, :ord, :policy_id, :weight)

-- insert_seed: Store a seed program.
INSERT INTO run_seeds (run_id, ord, program, origin) VALUES (:run_id, :ord, :program, :origin)
