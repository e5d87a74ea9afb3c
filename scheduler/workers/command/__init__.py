"""Run commands: the file that lists them, queues per command, processes and results."""
