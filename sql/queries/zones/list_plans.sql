-- The zones and versions that jobs were planned with, by a loose index scan from each pair to the next. An empty version:
-- an earlier release planned them.
WITH RECURSIVE plans AS (
    (SELECT timezone COLLATE "C" AS zone, coalesce(zone_version, '') AS version
     FROM jobs
     WHERE {by_zone}
     ORDER BY timezone COLLATE "C", coalesce(zone_version, '')
     LIMIT 1)
    UNION ALL
    SELECT following.zone, following.version
    FROM plans
    CROSS JOIN LATERAL (
        SELECT timezone COLLATE "C" AS zone, coalesce(zone_version, '') AS version
        FROM jobs
        WHERE {by_zone} AND (timezone COLLATE "C", coalesce(zone_version, '')) > (plans.zone, plans.version)
        ORDER BY timezone COLLATE "C", coalesce(zone_version, '')
        LIMIT 1
    ) AS following
)
SELECT zone, version FROM plans
