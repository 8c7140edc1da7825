"""Online learning over a data set: blocks in random order, progress, saving and resuming."""
