"""Scores of people's own files, of the sites of a genome, and of variants, streamed through a model."""
