-- See whether a job could be stored; it is rolled back.
INSERT INTO jobs (id) VALUES (gen_random_uuid())
