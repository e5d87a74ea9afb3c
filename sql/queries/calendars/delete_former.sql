-- Delete the former contents of calendars with which no pending or paused job is planned any more.
DELETE FROM former_calendars AS former
WHERE NOT EXISTS (SELECT FROM calendars WHERE calendars.name = former.name AND changed)
