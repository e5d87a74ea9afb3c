-- Store a calendar. `changed` is set if its content differs: the jobs that use it must be planned again, for which its
-- former content is kept.
WITH former AS (
    INSERT INTO former_calendars (name, revision, content)
    SELECT name, revision, content FROM calendars
    WHERE name = %(name)s AND tenant = %(tenant)s AND content IS NOT NULL AND %(changed)s
    ON CONFLICT DO NOTHING
)
INSERT INTO calendars AS stored (name, tenant, content, valid_until, version, revision, issued_at, updated_by)
VALUES (%(name)s, %(tenant)s, %(content)s, %(valid_until)s, %(version)s,
        1 + coalesce((SELECT max(revision) FROM calendars WHERE name = %(name)s), 0), %(issued_at)s, %(who)s)
ON CONFLICT (name, tenant) DO UPDATE
SET content = excluded.content, valid_until = excluded.valid_until, version = excluded.version,
    issued_at = excluded.issued_at,
    revision = CASE WHEN %(changed)s THEN excluded.revision ELSE stored.revision END,
    changed = stored.changed OR %(changed)s,
    updated_at = CASE WHEN %(changed)s THEN now() ELSE stored.updated_at END,
    updated_by = CASE WHEN %(changed)s THEN excluded.updated_by ELSE stored.updated_by END
