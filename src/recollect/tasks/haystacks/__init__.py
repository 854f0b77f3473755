"""Facts hidden in long texts: RULER and BABILong."""
