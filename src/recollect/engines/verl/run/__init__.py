"""The folder of a run on a cluster: its settings, its tasks, and rows that point at the tasks.

These rows only say which task to run; `worker.training_rows` makes the rows that are trained on.
"""
