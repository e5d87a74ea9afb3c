-- Mark what was sent, unless it has changed meanwhile.
UPDATE notifications SET sent = true
FROM unnest(%(keys)s::text[], %(sinces)s::timestamptz[]) AS delivered (key, since)
WHERE notifications.key = delivered.key AND notifications.since = delivered.since
