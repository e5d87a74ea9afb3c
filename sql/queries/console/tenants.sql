-- The tenants with jobs, each with bounded counts: pending and paused jobs, jobs due within an hour, and late ones. Tenants
-- are found by skipping through the indexes that begin with the tenant, which omit `default`; due and late jobs are
-- counted in the first rows of the due index.
WITH RECURSIVE listed AS (
    (SELECT tenant FROM jobs WHERE tenant <> 'default' AND {indexed} ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.tenant FROM jobs
            WHERE jobs.tenant > listed.tenant AND jobs.tenant <> 'default' AND {indexed}
            ORDER BY jobs.tenant LIMIT 1)
    FROM listed
    WHERE listed.tenant IS NOT NULL
), recurring AS (
    (SELECT tenant FROM recurring_jobs WHERE tenant <> 'default' ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT made.tenant FROM recurring_jobs AS made
            WHERE made.tenant > recurring.tenant AND made.tenant <> 'default'
            ORDER BY made.tenant LIMIT 1)
    FROM recurring
    WHERE recurring.tenant IS NOT NULL
), named AS (
    SELECT 'default' AS tenant
    UNION (SELECT tenant FROM listed WHERE tenant IS NOT NULL LIMIT %(most_tenants)s)
    UNION (SELECT tenant FROM recurring WHERE tenant IS NOT NULL LIMIT %(most_tenants)s)
), soon AS MATERIALIZED (
    SELECT tenant, count(*) AS jobs
    FROM (SELECT tenant FROM jobs
          WHERE status = 'pending' AND wake_at > now() AND wake_at <= now() + interval '1 hour' AND retry_at IS NULL
          ORDER BY wake_at LIMIT %(most_due)s) AS due
    GROUP BY tenant
), late AS MATERIALIZED (
    SELECT tenant, count(*) AS jobs
    FROM (SELECT id, tenant
          FROM (SELECT id, tenant FROM jobs
                WHERE status = 'pending' AND wake_at <= now() - interval '2 seconds'
                ORDER BY wake_at LIMIT %(most_due)s) AS due
          UNION
          SELECT id, tenant
          FROM (SELECT id, tenant, held_by, retries FROM jobs
                WHERE status = 'pending' AND retry_at IS NOT NULL
                ORDER BY least(next_run_at, trigger_at) LIMIT %(most_due)s) AS refused
          WHERE held_by IS NULL AND retries > 0) AS late
    GROUP BY tenant
)
SELECT named.tenant,
       CASE WHEN named.tenant = 'default'
            THEN (SELECT count(*) FROM (SELECT FROM jobs
                                        WHERE jobs.tenant = 'default' AND status = 'pending' AND {indexed}
                                        ORDER BY created_at DESC LIMIT %(most)s) AS pending)
               + (SELECT count(*) FROM (SELECT FROM recurring_jobs WHERE tenant = 'default' LIMIT %(most)s) AS recur)
            ELSE (SELECT count(*) FROM (SELECT FROM jobs
                                        WHERE jobs.tenant = named.tenant AND jobs.tenant <> 'default'
                                          AND status = 'pending' AND {indexed}
                                        LIMIT %(most)s) AS pending)
               + (SELECT count(*) FROM (SELECT FROM recurring_jobs AS made
                                        WHERE made.tenant = named.tenant AND made.tenant <> 'default'
                                        LIMIT %(most)s) AS recur)
       END AS pending,
       CASE WHEN named.tenant = 'default'
            THEN (SELECT count(*) FROM (SELECT FROM jobs
                                        WHERE jobs.tenant = 'default' AND status = 'paused' AND {indexed}
                                        ORDER BY created_at DESC LIMIT %(most)s) AS paused)
            ELSE (SELECT count(*) FROM (SELECT FROM jobs
                                        WHERE jobs.tenant = named.tenant AND jobs.tenant <> 'default'
                                          AND status = 'paused' AND {indexed}
                                        LIMIT %(most)s) AS paused)
       END AS paused,
       coalesce(soon.jobs, 0) AS soon, coalesce(late.jobs, 0) AS late
FROM named
LEFT JOIN soon USING (tenant)
LEFT JOIN late USING (tenant)
ORDER BY late DESC, soon DESC, named.tenant
LIMIT %(most_tenants)s
