"""A process between a worker and one command: starts the command, reads its output and ends all its processes.

It imports only the standard library and starts before it is needed, so that a command starts without delay; it has
no threads, so it may fork. On Linux it is a *subreaper*: orphaned descendants of the command become its children,
even in another session, so it finds every process that the command started. If the worker dies or freezes, it ends
the command, because another worker will run it.
"""
