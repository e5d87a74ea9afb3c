"""The console's parts for targets: a module per kind, which reads and fills its part of the job form."""
