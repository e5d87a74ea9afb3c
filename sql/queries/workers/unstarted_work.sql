-- Count the attempts that no worker has started, by the routing key of their work, with the seconds of the longest
-- wait. A row limit keeps it cheap when many runs are open.
SELECT work, count(*), extract(epoch FROM now() - min(emitted_at))::float8 AS longest
FROM (SELECT status, work, emitted_at FROM runs WHERE wake_at > '-infinity' LIMIT %(most)s) AS open
WHERE status = 'delivered' AND work IS NOT NULL
GROUP BY work
