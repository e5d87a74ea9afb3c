-- Make expired attempts due at once that were postponed until the queued results were read.
UPDATE runs SET wake_at = now()
FROM (SELECT event_id
      FROM runs
      WHERE wake_at > now() AND wake_at <= now() + make_interval(secs => %(seconds)s)
        AND status IN ('delivered', 'running') AND least(deadline, alive_until) <= now()
      ORDER BY wake_at
      FOR UPDATE SKIP LOCKED) AS expired
WHERE runs.event_id = expired.event_id
