"""`recollect eval`: agents side by side on the same tasks, stored, scored and compared.

In order: `setup` chooses, `jobs` lists the episodes, `harness` runs them, `records` stores them,
`scoring` and `judging` score them, `summary` compares, and `report/` writes the pages.
"""
