"""The folder of a run: metrics, episodes, checkpoints, and trackers that show the metrics.

`checkpoints` seals a checkpoint with its hashes and finds a whole one; what a model puts into it is
in `train.saved_model`.
"""
