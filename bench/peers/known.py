"""The peers with the fastest of the settings tried here."""

from bench.peers.install import NODE_PACKAGES, PYTHON_PACKAGES
from bench.peers.runs import Peer

PEERS = {peer.name: peer for peer in (
    Peer(
        "procrastinate", "procrastinate_worker.py", PYTHON_PACKAGES["procrastinate"], processes=2,
        settings={"concurrency": 10, "delete_jobs": "successful", "fetch_job_polling_interval": 0.05},
        left="SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing')", share=0.05,
    ),
    Peer(
        "pgqueuer", "pgqueuer_worker.py", PYTHON_PACKAGES["pgqueuer"], processes=2,
        settings={"batch_size": 500, "dequeue_timeout": 0.1}, left="SELECT 1 FROM pgqueuer", share=0.5,
    ),
    Peer(
        "celery", "celery_worker.py", PYTHON_PACKAGES["celery"], processes=2,
        settings={"pool": "threads", "concurrency": 1, "prefetch_multiplier": 500},
        publishing={"concurrency": 4}, share=0.1,
    ),
    Peer(
        "apscheduler", "apscheduler_worker.py", PYTHON_PACKAGES["APScheduler"], processes=1,
        settings={"max_workers": 20}, left="SELECT 1 FROM apscheduler_jobs", share=0.05,
    ),
    Peer(
        "graphile-worker", "graphile_worker.mjs", NODE_PACKAGES["graphile-worker"], processes=2,
        settings={"concurrentJobs": 500, "localQueue": 1000, "completeJobBatchDelay": 0, "pollInterval": 50},
        left="SELECT 1 FROM graphile_worker.jobs",
    ),
    Peer(
        "pg-boss", "pgboss_worker.mjs", NODE_PACKAGES["pg-boss"], processes=2,
        settings={"batchSize": 1000, "localConcurrency": 2, "pollingIntervalSeconds": 0.5},
        left="SELECT 1 FROM pgboss.job WHERE name = 'handle' AND state < 'completed'",
    ),
)}
