-- Free text that a request gives its job.
ALTER TABLE jobs ADD COLUMN description text;
