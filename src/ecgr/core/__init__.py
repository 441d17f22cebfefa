"""The method: displacements of local steps, their geometry, and regulators that weigh them. Torch and numpy only."""
