"""`recollect view`: what a memory kept, lost and why, as a page made from stored episodes."""
