-- Add a job that has only just been asked for, by itself: a COPY of one row takes twice as long.
INSERT INTO jobs ({fresh}) VALUES ({values})
