-- holder: The run that has the shared learner; locks the campaign.
SELECT run_id FROM campaign_runs WHERE campaign_id = :id AND learner
  AND (SELECT id FROM campaigns WHERE id = :id FOR UPDATE) IS NOT NULL

-- give: Mark the run that has the shared learner.
UPDATE campaign_runs SET learner = (run_id = :run_id) WHERE campaign_id = :id AND run_id IS NOT NULL

-- take: Store what is left of the learner in the run before; nothing else of it changes, which may have ended.
UPDATE run_progress SET learning = cast(:learning AS jsonb), revision = revision + 1 WHERE run_id = :run_id
RETURNING revision, events

-- learned: What each run of a campaign learned.
SELECT r.learner, p.learning, p.state FROM campaign_runs r JOIN run_progress p ON p.run_id = r.run_id
WHERE r.campaign_id = :id ORDER BY r.position

-- steps: The newest training steps of a campaign's runs, newest first.
SELECT e.data FROM events e JOIN campaign_runs r ON r.run_id = e.run_id
WHERE r.campaign_id = :id AND e.kind = 'learning.step'
ORDER BY cast(e.data ->> 'step' AS bigint) DESC LIMIT :limit
