-- One page of the calendars that a tenant can use, or of every owner, by name, each with the number of pending and paused jobs that use it.
-- A tenant's own calendar hides that of all tenants with its name. The page ends before its contents are too large together.
SELECT page.name, page.tenant, content::text, version, updated_at, updated_by,
       (SELECT count(*) FROM jobs
        WHERE jobs.calendar = page.name AND jobs.status IN ('pending', 'paused')
          AND CASE WHEN page.tenant <> '*' THEN jobs.tenant = page.tenant
                   ELSE (%(counted)s::text IS NULL OR jobs.tenant = %(counted)s)
                        AND NOT EXISTS (SELECT FROM calendars AS own
                                        WHERE own.name = page.name AND own.tenant = jobs.tenant
                                          AND own.content IS NOT NULL) END) AS jobs
FROM (
    SELECT *, sum(length(content::text)) OVER (ORDER BY name, tenant) AS size, row_number() OVER (ORDER BY name, tenant)
    FROM (
        SELECT * FROM calendars
        WHERE content IS NOT NULL AND (%(owner)s::text IS NULL OR tenant IN (%(owner)s, '*'))
          AND (name, tenant) > (%(after_name)s, %(after_tenant)s)
          AND (%(name)s::text IS NULL OR name = %(name)s)
          AND NOT (tenant = '*' AND coalesce(%(owner)s, '*') <> '*' AND EXISTS (
              SELECT FROM calendars AS own
              WHERE own.name = calendars.name AND own.tenant = %(owner)s AND own.content IS NOT NULL))
        ORDER BY name, tenant
        LIMIT %(limit)s
    ) AS calendars
) AS page
WHERE size <= %(bytes)s OR row_number = 1
ORDER BY page.name, page.tenant
