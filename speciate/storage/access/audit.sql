-- old: Old entries, found by id, which is indexed and as old as the entry.
FROM audit WHERE id < :floor AND at < :before

-- count_old: Number of old entries.
SELECT count(*) {old}

-- allow_deletion: Let this transaction delete, which a trigger refuses otherwise.
SET LOCAL speciate.audit_retention = 'on'

-- delete_some: Delete the oldest entries.
WITH deleted AS (DELETE FROM audit WHERE id IN (SELECT id {old} ORDER BY id LIMIT :most) RETURNING at)
SELECT count(*) AS entries, min(at) AS first, max(at) AS last FROM deleted

-- append: Append an entry.
INSERT INTO audit (id, principal, token_id, project_id, action, object, address, status)
VALUES (:id, :principal, :token_id, :project_id, :action, :object, :address, :status)

-- page: Entries, newest first.
SELECT a.*, p.slug AS project FROM audit a LEFT JOIN projects p ON p.id = a.project_id
{where} ORDER BY a.id DESC LIMIT :limit
