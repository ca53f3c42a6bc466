"""Who did what with whom: matched operations, steps, topology, and the order in which things must have happened. Pure."""
