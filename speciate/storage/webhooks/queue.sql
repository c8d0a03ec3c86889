-- subscribed: Webhooks of an event, locked so that none is removed before its deliveries refer to it.
SELECT id FROM webhooks WHERE :event = ANY(events) AND project_id = :project_id ORDER BY id FOR KEY SHARE

-- run: What a payload says about a run.
SELECT r.id, r.project_id, g.alarm, p.slug || '@' || p.version AS problem, a.slug || '@' || a.version AS policy,
  b.slug || '@' || b.version AS mutator, {policy_names} AS ensemble, r.strategy
FROM runs r JOIN run_progress g ON g.run_id = r.id JOIN problems p ON p.id = r.problem_id
  JOIN policies a ON a.id = r.policy_id LEFT JOIN policies b ON b.id = {mutator}
WHERE r.id = :id

-- enqueue: Enqueue a delivery.
INSERT INTO webhook_deliveries (id, webhook_id, event, data) VALUES (:id, :webhook_id, :event, cast(:data AS jsonb))
