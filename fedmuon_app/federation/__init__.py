"""A federation without Flower: who takes part, the one round loop, clients' states, and the run's log."""
