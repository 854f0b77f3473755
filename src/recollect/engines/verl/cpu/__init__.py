"""verl on machines without a GPU, for tests: patches that no real run loads."""
