-- Filter for pending and paused jobs that use a calendar and were planned with another state of it. A tenant's own calendar
-- hides that of all tenants.
jobs.calendar = {calendar} AND jobs.status IN ('pending', 'paused')
AND CASE WHEN {owner} <> '*' THEN jobs.tenant = {owner}
         ELSE NOT EXISTS (SELECT FROM calendars AS own
                          WHERE own.name = {calendar} AND own.tenant = jobs.tenant AND own.content IS NOT NULL) END
AND jobs.calendar_revision IS DISTINCT FROM {revision}
