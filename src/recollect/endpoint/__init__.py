"""An endpoint without a limit of context: an agent folds what is long into a memory per user."""
