-- Add and drop the history's partitions without making others wait: one partition a call, and 50 ms for its locks.
-- Both functions return how many partitions were missing or expired before the call, or NULL if a lock was not available.

-- Add the first missing partition. CREATE TABLE ... PARTITION OF would lock the whole history exclusively. ATTACH lets others read
-- and write it, and locks only the default partition exclusively, into which nothing is written while there are partitions ahead.
CREATE FUNCTION add_run_partition(days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    missing date[];
    partition text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1548667951) THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(day ORDER BY day)
    INTO missing
    FROM (SELECT generate_series(today, today + least(days, 60), interval '1 day')::date AS day) AS wanted
    WHERE to_regclass('run_history_' || to_char(day, 'YYYYMMDD')) IS NULL
      AND NOT EXISTS (SELECT FROM run_history_default
                      WHERE finished_at >= day::timestamp AT TIME ZONE 'UTC'
                        AND finished_at < (day + 1)::timestamp AT TIME ZONE 'UTC');
    IF missing IS NULL THEN
        RETURN 0;
    END IF;
    partition := 'run_history_' || to_char(missing[1], 'YYYYMMDD');
    -- With its indexes, so that ATTACH finds them and holds its locks briefly.
    EXECUTE format('CREATE TABLE %I (LIKE run_history INCLUDING ALL)', partition);
    EXECUTE format('ALTER TABLE run_history ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition,
                   missing[1]::timestamp AT TIME ZONE 'UTC', (missing[1] + 1)::timestamp AT TIME ZONE 'UTC');
    RETURN cardinality(missing);
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        RETURN NULL;
END
$$;

-- Drop the oldest partition of a day that ended so many days ago, and such rows of the default partition. DROP locks the whole
-- history exclusively: there is no weaker way while there is a default partition.
CREATE FUNCTION drop_run_partition(retention_days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '50ms' AS $$
DECLARE
    kept_from timestamptz := now() - make_interval(days => greatest(retention_days, 0));
    expired text[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(1548667951) THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(relname::text ORDER BY relname)
    INTO expired
    FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
    WHERE inhparent = 'run_history'::regclass AND relname ~ '^run_history_\d{8}$'
      AND to_date(right(relname, 8), 'YYYYMMDD') + 1 <= (kept_from AT TIME ZONE 'UTC')::date
      AND to_date(right(relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date;
    IF expired IS NULL THEN
        DELETE FROM run_history_default WHERE finished_at < kept_from;
        RETURN 0;
    END IF;
    EXECUTE format('DROP TABLE %I', expired[1]);
    RETURN cardinality(expired);
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        RETURN NULL;
END
$$;

-- For processes of the previous release, which call these: they wait no longer either, and do not fail.
CREATE OR REPLACE FUNCTION make_run_partitions(days integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    WHILE add_run_partition(days) > 1 LOOP
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION drop_run_partitions(retention_days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    found integer;
    dropped integer := 0;
BEGIN
    LOOP
        found := drop_run_partition(retention_days);
        EXIT WHEN coalesce(found, 0) = 0;
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;
