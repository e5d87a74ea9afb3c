-- Record problems; one that is already recorded and not resolved is unchanged.
INSERT INTO notifications (key, kind, subject, tenant, firing, since)
SELECT kind || ':' || coalesce(tenant || ':', '') || subject, kind, subject, tenant, true, since
FROM unnest(%(kinds)s::text[], %(subjects)s::text[], %(tenants)s::text[], %(sinces)s::timestamptz[])
     AS found (kind, subject, tenant, since)
ON CONFLICT (key) DO UPDATE SET firing = true, since = excluded.since, sent = false, changed_at = now()
WHERE NOT notifications.firing
