"""JSON views of jobs and runs for the API, the console and the command line."""
