-- insert: Store advice of a policy.
INSERT INTO advice (run_id, number, parent, rollout_id, text)
SELECT :run_id, :number, :parent, id, :text FROM rollouts WHERE work_id = :work_id AND role = 'advise'

-- insert_hint: Store a user's hint.
INSERT INTO advice (run_id, number, parent, text, author) VALUES (:run_id, :number, 0, :text, :author)

-- retire: Store the final gains of advice that leaves the prompts.
UPDATE advice SET judged = judged + :judged, won = won + :won, dropped = true
WHERE run_id = :run_id AND number = :number

-- gains: Gains of the advice in use.
SELECT advice FROM run_progress WHERE run_id = :run_id

-- texts: Texts of advice.
SELECT number, parent, text FROM advice WHERE run_id = :run_id AND number = ANY(:numbers)

-- page: Advice, newest first.
SELECT number, parent, rollout_id, author, text, judged, won, dropped, created_at FROM advice
WHERE run_id = :run_id AND number < :before ORDER BY number DESC LIMIT :limit
