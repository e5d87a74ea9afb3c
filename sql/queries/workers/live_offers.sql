-- List what live workers offer, with the name of each worker as in its results.
SELECT host || ':' || pid AS name, offers FROM workers WHERE last_seen_at > now() - %(stale_after)s * interval '1 second'
