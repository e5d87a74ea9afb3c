"""What people see of jobs and runs, in the API, the console and the command line alike."""
