-- campaigns: Campaigns with what their runs spent and unlocked.
SELECT d.*, n.spent, n.unlocked, (SELECT count(*) FROM campaign_slices s WHERE s.campaign_id = d.id) AS slices
FROM campaigns d CROSS JOIN LATERAL (
  SELECT coalesce(sum(p.evaluations), 0)::bigint AS spent, count(*) FILTER (WHERE EXISTS (
    SELECT FROM claims k WHERE k.run_id = r.run_id AND k.state = 'confirmed' AND k."unlock")) AS unlocked
  FROM campaign_runs r LEFT JOIN run_progress p ON p.run_id = r.run_id WHERE r.campaign_id = d.id) n

-- by_id: A campaign by id.
{campaigns} WHERE d.id = :id

-- page: A page of campaigns, newest first.
{campaigns}{conditions} ORDER BY id DESC LIMIT :limit

-- pending: Running and paused campaigns, and cancelled ones with an open run or slice.
SELECT id FROM campaigns c WHERE state IN ('running', 'paused') OR state = 'cancelled' AND EXISTS (
  SELECT FROM campaign_runs r LEFT JOIN run_progress p ON p.run_id = r.run_id
    LEFT JOIN campaign_slices s ON s.campaign_id = r.campaign_id AND s.position = r.position AND s.spent IS NULL
  WHERE r.campaign_id = c.id AND (s.ord IS NOT NULL OR p.state NOT IN ('completed', 'failed', 'cancelled')))
ORDER BY id

-- add_problems: Store the problems of a new campaign, in declared order.
INSERT INTO campaign_runs (campaign_id, position, problem)
SELECT :id, p.ord - 1, p.problem FROM unnest(cast(:problems AS text[])) WITH ORDINALITY AS p (problem, ord)

-- problems: Progress of every problem of a campaign.
SELECT r.problem, r.run_id, p.state, p.reason, coalesce(p.granted, 0) AS granted,
  coalesce(p.evaluations, 0) AS spent, coalesce(s.slices, 0) AS slices, coalesce(k.reached, '{}') AS reached,
  coalesce(k.latest, 0) AS latest, coalesce(k.unlocked, false) AS unlocked
FROM campaign_runs r LEFT JOIN run_progress p ON p.run_id = r.run_id
  LEFT JOIN (SELECT position, count(*) AS slices FROM campaign_slices WHERE campaign_id = :id GROUP BY position) s
    ON s.position = r.position
  LEFT JOIN LATERAL (SELECT array_agg(target ORDER BY evaluations, target) AS reached, max(evaluations) AS latest,
    bool_or("unlock") AS unlocked FROM claims k WHERE k.run_id = r.run_id AND k.state = 'confirmed') k ON true
WHERE r.campaign_id = :id ORDER BY r.position

-- slices: Slices after a position, in order.
SELECT * FROM campaign_slices WHERE campaign_id = :id AND ord > :after ORDER BY ord

-- decisions: Slices with their problems, newest first.
SELECT s.*, r.problem FROM campaign_slices s
  JOIN campaign_runs r ON r.campaign_id = s.campaign_id AND r.position = s.position
WHERE s.campaign_id = :id AND s.ord < coalesce(cast(:before AS bigint), s.ord + 1) ORDER BY s.ord DESC LIMIT :limit

-- decide: Store a decision, unless another leader stored one at its position.
INSERT INTO campaign_slices (campaign_id, ord, position, first, evaluations, gap, chance)
VALUES (:id, :ord, :position, :first, :evaluations, :gap, :chance) ON CONFLICT DO NOTHING RETURNING ord

-- attach: Record the run that was created for a problem.
UPDATE campaign_runs SET run_id = :run_id WHERE campaign_id = :id AND position = :position

-- reached: Targets that no earlier slice reached, and the evaluations at the latest of all.
-- A claim may be confirmed long after its candidate, when another is refuted.
SELECT coalesce(array_agg(k.target ORDER BY k.evaluations, k.target) FILTER (WHERE NOT EXISTS (
    SELECT FROM campaign_slices s WHERE s.campaign_id = :id AND s.position = :position AND s.ord < :ord
      AND k.target = ANY(s.reached))), '{}') AS reached,
  coalesce(max(k.evaluations), 0) AS latest FROM claims k WHERE k.run_id = :run_id AND k.state = 'confirmed'

-- settle: Record the result of a slice, once.
UPDATE campaign_slices SET spent = :spent, gap_after = :gap_after, reached = :reached, closed = :closed
WHERE campaign_id = :id AND ord = :ord AND spent IS NULL

-- adopt_paused: Let runs that were paused for a fault or by hand resume with the campaign; others wait for a grant.
UPDATE run_progress SET reason = :reason WHERE state = 'paused' AND reason IS DISTINCT FROM {waits} AND run_id IN (
  SELECT run_id FROM campaign_runs WHERE campaign_id = :id)
