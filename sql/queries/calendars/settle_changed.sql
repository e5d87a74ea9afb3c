-- Mark the changed calendars whose jobs are all planned again.
UPDATE calendars AS changed
SET changed = false
WHERE changed AND NOT EXISTS (SELECT FROM jobs WHERE {outdated})
