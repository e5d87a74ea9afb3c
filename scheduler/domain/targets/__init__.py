"""What a job has done for it by a worker: a webhook called, or a command run."""
