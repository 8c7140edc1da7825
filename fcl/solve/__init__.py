"""The steps of the solver and the state that they share; drivers put them in order."""
