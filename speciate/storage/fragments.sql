-- running_seconds: Running seconds of a run until now, by the database's clock, which all workers share.
-- A clock that was set back gives no time back. What passes without a reconciler, as in the sleep of a computer, is none.
seconds + CASE WHEN state = 'running' THEN greatest(0, extract(epoch FROM least(clock_timestamp(),
    (SELECT max(alive_at) FROM reconciler) + interval '15 seconds') - running_since)) ELSE 0 END

-- ensemble_shares: The ensemble of run r as JSON for ``runs.context.members``, proposers first.
(SELECT jsonb_agg(jsonb_build_object('role', e.role, 'policy_id', e.policy_id, 'policy', q.slug,
    'policy_version', q.version, 'weight', e.weight) ORDER BY e.role DESC, e.ord)
  FROM run_policies e JOIN policies q ON q.id = e.policy_id WHERE e.run_id = r.id)

-- policy_names: The policies of run r if it has an ensemble, proposals of another policy or learns, else empty.
-- What a policy reached while it learned counts for no version of it.
CASE WHEN r.spec -> 'learning' IS NULL THEN
  ARRAY(SELECT DISTINCT q.slug || '@' || q.version FROM run_policies e
    JOIN policies q ON q.id = e.policy_id OR e.role = 'external' AND q.id IN (r.policy_id, r.mutator_id)
    WHERE e.run_id = r.id ORDER BY 1)
ELSE ARRAY(SELECT q.slug || '@' || q.version || ' learning' FROM policies q WHERE q.id = r.policy_id) END

-- alone: True if no policy but that of run r and its mutator took part, nor versions that it learned.
(r.spec -> 'learning' IS NULL AND NOT EXISTS (SELECT FROM run_policies e WHERE e.run_id = r.id))

-- waits_outside: True if run_progress p has no work since all candidates of its run come from outside, or if an
-- external evaluator has one. As ``RunContext.waits_for_proposals``: such a run may wait as long as they like.
(EXISTS (SELECT FROM external_evaluations e
    WHERE e.run_id = p.run_id AND e.state = 'leased' AND e.lease_until > clock_timestamp())
  OR p.live = 0 AND EXISTS (SELECT FROM runs r JOIN policies a ON a.id = r.policy_id
    WHERE r.id = p.run_id AND (a.definition ->> 'kind' = 'external' OR r.spec ->> 'engine' IS NOT NULL)))

-- mutator: The mutator of run r; NULL if it is the policy itself.
nullif(r.mutator_id, r.policy_id)

-- best_unlocks: 1 if the best candidate of run g meets the unlock target: if some claim to one was not refuted.
EXISTS (SELECT FROM claims k WHERE k.run_id = g.run_id AND k.unlock AND k.state <> 'refuted')::int

-- waiting_unit: The unfinished evaluation whose batch holds candidate :number of run :run_id.
FROM work w WHERE w.run_id = :run_id AND w.kind = 'evaluate' AND w.state IN ('ready', 'leased', 'parked')
  AND :number - (w.payload ->> 'first')::bigint BETWEEN 0 AND jsonb_array_length(w.payload -> 'proposals') - 1
