"""Yardstick for POST: a plain FastAPI route that inserts one row with the same driver; `python -m bench.bare_api PORT`."""

import os
import sys
from uuid import UUID

import psycopg2.pool
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

pool = psycopg2.pool.ThreadedConnectionPool(8, 40, os.environ["DATABASE_URL"])
app = FastAPI()


class Job(BaseModel):
    """The posted body."""

    id: UUID
    job_type: str
    payload: dict
    run_at: str


@app.post("/jobs", status_code=201)
def create(job: Job) -> Job:
    connection = pool.getconn()
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO jobs (id, job_type, payload, next_run_at, starts_at) VALUES (%s, %s, %s, %s, %s)",
                           (str(job.id), job.job_type, job.model_dump_json(include={"payload"}), job.run_at, job.run_at))
    finally:
        pool.putconn(connection)
    return job


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
