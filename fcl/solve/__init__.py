"""The steps of the solver and the state that they share; drivers run them in order."""
