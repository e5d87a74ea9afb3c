-- Vacuum jobs less often if there are many: each vacuum reads all indexes. A hundredth of the rows is 10,000 more changes between
-- two vacuums for each million jobs.
ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0.01);
