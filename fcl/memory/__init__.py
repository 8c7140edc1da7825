"""Memory: what a run may take, what files may take, and what processes hold."""
