"""Compare two cubins, two modules, or one kernel under several names."""
