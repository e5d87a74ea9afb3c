"""The time of an event is the database's, however long the first claim takes."""

import threading
from contextlib import closing
from datetime import timedelta

from support import DEADLINE, connected, until

from scheduler.emitting.batch import Batch
from scheduler.emitting.sources.jobs import DueJobs
from scheduler.postgres.claims import LONG_AGO, ClaimSession

WAITED = ("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
          "AND query_start < clock_timestamp() - interval '2 seconds'")


def test_preparing_a_claim_does_not_shift_the_time_of_its_events(database_url):
    batches = []
    with (closing(ClaimSession(database_url, "test")) as session, connected(database_url) as other,
          connected(database_url) as observer, other.cursor() as locking, observer.cursor() as cursor):
        observer.autocommit = True
        locking.execute("BEGIN; LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        claiming = threading.Thread(target=lambda: batches.append(
            Batch.claimed(DueJobs(), session, 10, (LONG_AGO,) * 3)))
        claiming.start()
        until(lambda: cursor.execute(WAITED) or cursor.fetchone(), "a claim that has waited for two seconds")
        locking.execute("ROLLBACK")
        claiming.join(DEADLINE)
        [batch] = batches
        time = batch.database_time()
        cursor.execute("SELECT clock_timestamp()")
        assert time < cursor.fetchone()[0] + timedelta(seconds=1)
