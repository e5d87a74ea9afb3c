-- One page of audit entries, newest first. The creation of a job over AMQP has no entry: its row is the record. `place`
-- orders entries with the same time.
SELECT place, at, who, via, action, kind, thing, tenant, address, before, after, batch, reason
FROM (
    (SELECT '1' || lpad(id::text, 19, '0') AS place, at, who, via, action, kind, thing, tenant, address, before, after,
            batch::text, reason
     FROM audit
     WHERE (%(tenant)s IS NULL OR tenant = %(tenant)s)
       AND (%(who)s IS NULL OR who = %(who)s)
       AND (%(via)s IS NULL OR via = %(via)s)
       AND (%(action)s IS NULL OR action = %(action)s)
       AND (%(kind)s IS NULL OR kind = %(kind)s)
       AND (%(thing)s IS NULL OR thing = %(thing)s)
       AND (%(since)s IS NULL OR at >= %(since)s::timestamptz)
       AND (%(until)s IS NULL OR at < %(until)s::timestamptz)
       AND (%(before)s IS NULL OR at <= %(before)s::timestamptz)
       AND (%(before)s IS NULL
            OR (at, '1' || lpad(id::text, 19, '0')) < (%(before)s::timestamptz, %(before_place)s))
     ORDER BY at DESC, id DESC
     LIMIT %(limit)s)
    UNION ALL
    (SELECT '0' || id::text, created_at, created_by, 'amqp', 'request', 'job', id::text, tenant, NULL, NULL, NULL,
            NULL, NULL
     FROM ({newest}) AS jobs)
) AS entries
ORDER BY at DESC, place DESC
LIMIT %(limit)s
