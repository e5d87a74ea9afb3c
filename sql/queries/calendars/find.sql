-- The rows of calendars by name and owner, also deleted ones.
SELECT name, calendars.tenant, content::text, version, issued_at
FROM unnest(%(names)s::text[], %(tenants)s::text[]) AS wanted (wanted_name, wanted_tenant)
JOIN calendars ON name = wanted_name AND calendars.tenant = wanted_tenant
