"""A process between a worker and one command: starts it, keeps the last of its output, and ends all of it.

It runs with the standard library alone and starts long before it is needed: then it takes no time, and without
threads it may fork. It adopts whatever the command leaves behind (a *subreaper*: a grandchild whose parent has
ended becomes ours, whatever session it moved to), so all that the command ever started is found below it. When the
worker dies, or stands still, it ends the command: another worker will soon take it up.
"""
