-- Calendars whose jobs are not yet planned again.
SELECT name, tenant, version, {effective}
FROM calendars AS changed
WHERE changed
ORDER BY name, tenant
