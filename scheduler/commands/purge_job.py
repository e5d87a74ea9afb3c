"""Purge a job: erase its content, its runs and its history now; a tombstone remains."""

from scheduler.commands.operator_commands import NoSuchRecord, RowLocked
from scheduler.domain.caller import Caller
from scheduler.domain.jobs.job import Job, purged
from scheduler.postgres import audit
from scheduler.postgres.connection import Connection, Contended, Cursor, LockTimeout, database_time, transaction
from scheduler.postgres.jobs import purge
from scheduler.postgres.jobs.store import lock, save
from scheduler.postgres.jobs.versions import delete_versions


def purge_job(connection: Connection, job_id: str, tenant: str | None, caller: Caller) -> None:
    """Purge the job. Raises NoSuchRecord or RowLocked; the caller may then repeat it."""
    try:
        more = True
        while more:  # a long history is deleted in several transactions
            with transaction(connection) as cursor:
                _lock(cursor, job_id, tenant)
                more = _delete_runs(cursor, job_id)
        with transaction(connection) as cursor:
            job = _lock(cursor, job_id, tenant)
            _delete_runs(cursor, job_id)
            delete_versions(cursor, job_id)
            purge.delete_job(cursor, job_id)
            save(cursor, {}, {job_id: purged(job, database_time(cursor))})
            purge.erase_audit(cursor, [job_id])
            audit.write_entries(cursor, [audit.AuditEntry(caller, "purge", "job", job_id, job.tenant)])
    except (Contended, LockTimeout):
        raise RowLocked(f"the job {job_id}, or one of its runs") from None


def _lock(cursor: Cursor, job_id: str, tenant: str | None) -> Job:
    job = lock(cursor, [job_id]).get(job_id)
    if job is None or job.definition is None or tenant not in (None, job.tenant):
        raise NoSuchRecord
    return job


def _delete_runs(cursor: Cursor, job_id: str) -> bool:
    """Delete some of the job's runs and erase what the audit has about them; return whether some may be left."""
    event_ids = purge.delete_runs(cursor, job_id)
    if event_ids:
        purge.erase_audit(cursor, event_ids)
    return len(event_ids) >= purge.RUNS_AT_ONCE
