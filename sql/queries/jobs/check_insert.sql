-- Check that a job can be inserted; the transaction is rolled back.
INSERT INTO jobs (id) VALUES (gen_random_uuid())
