"""Models at many values of C, and the choice of one of them by held-out rows."""
