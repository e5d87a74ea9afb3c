-- The calendars that apply to jobs of these tenants by name: the tenant's own, or else that of all tenants.
SELECT DISTINCT ON (wanted_name, wanted_tenant) wanted_tenant, wanted_name, calendars.tenant, version, revision{content}
FROM unnest(%(names)s::text[], %(tenants)s::text[]) AS wanted (wanted_name, wanted_tenant)
JOIN calendars ON name = wanted_name AND calendars.tenant IN (wanted_tenant, '*') AND content IS NOT NULL
ORDER BY wanted_name, wanted_tenant, calendars.tenant = '*'
