-- Remember from when on dead runs are notified: from the first start.
INSERT INTO notifications (key, kind, subject, firing, since, sent)
VALUES ('place:', 'place', '', false, now(), true)
ON CONFLICT (key) DO NOTHING
