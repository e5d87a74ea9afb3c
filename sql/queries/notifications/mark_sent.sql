-- Mark what was sent, unless it has changed meanwhile.
UPDATE notifications SET sent = true
FROM unnest(%(keys)s::text[], %(sinces)s::timestamptz[]) AS told (key, since)
WHERE notifications.key = told.key AND notifications.since = told.since
