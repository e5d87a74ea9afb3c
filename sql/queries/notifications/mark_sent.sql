-- Mark notifications as sent, unless they have changed since.
UPDATE notifications SET sent = true
FROM unnest(%(keys)s::text[], %(sinces)s::timestamptz[]) AS delivered (key, since)
WHERE notifications.key = delivered.key AND notifications.since = delivered.since
