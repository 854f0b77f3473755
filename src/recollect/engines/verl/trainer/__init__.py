"""In verl's trainer: our advantages, loss, mini-batches, records and the exported model."""
