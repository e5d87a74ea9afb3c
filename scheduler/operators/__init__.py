"""The commands of those who run the scheduler: each verb prints what it did, or returns what is wrong."""
