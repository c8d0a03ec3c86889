-- declaration_of_run: Tournament or campaign that started a run.
SELECT 'tournament ' || t.slug AS name FROM tournament_runs p JOIN tournaments t ON t.id = p.tournament_id
WHERE p.run_id = :id
UNION ALL SELECT 'campaign ' || t.slug FROM campaign_runs p JOIN campaigns t ON t.id = p.campaign_id
WHERE p.run_id = :id

-- problem_uses: What refers to a problem version.
SELECT 'run' AS kind, r.id::text AS name FROM runs r WHERE r.problem_id = :id AND r.deleted_at IS NULL
UNION ALL SELECT 'problem set', s.slug FROM problem_set_members m JOIN problem_sets s ON s.id = m.set_id
WHERE m.problem_id = :id
UNION ALL SELECT 'tournament', t.slug FROM tournaments t
WHERE t.project_id = :project AND EXISTS (SELECT FROM tournament_runs p WHERE p.tournament_id = t.id
    AND p.problem = :name)
UNION ALL SELECT 'campaign', t.slug FROM campaigns t
WHERE t.project_id = :project AND EXISTS (SELECT FROM campaign_runs p WHERE p.campaign_id = t.id
    AND p.problem = :name)

-- policy_uses: What refers to a policy version.
-- To a learned version: the run that wrote it, and the campaign whose runs share it.
SELECT 'run' AS kind, r.id::text AS name FROM runs r
WHERE r.deleted_at IS NULL AND r.id IN (SELECT id FROM runs WHERE policy_id = :id
    OR mutator_id = :id UNION SELECT run_id FROM run_policies WHERE policy_id = :id)
UNION ALL SELECT 'tournament', slug FROM tournaments
WHERE project_id = :project AND jsonb_path_exists(declaration,
    '$.entrants[*].** ? (@.policy == $name || @.mutator == $name)', jsonb_build_object('name', cast(:name AS text)))
UNION ALL SELECT 'campaign', slug FROM campaigns
WHERE project_id = :project AND (jsonb_exists(declaration::jsonb -> 'policy', :name)
    OR jsonb_exists(declaration::jsonb -> 'mutator', :name))
UNION ALL SELECT 'run', r.id::text
FROM policies p JOIN runs r ON r.id = cast(p.definition -> 'lineage' ->> 'run' AS uuid)
WHERE p.id = :id AND r.deleted_at IS NULL
UNION ALL SELECT 'campaign', c.slug
FROM policies p JOIN campaigns c ON c.project_id = p.project_id AND c.slug = p.definition -> 'lineage' ->> 'campaign'
WHERE p.id = :id
