"""Pure functions over the wire shapes: no I/O, no clock of their own."""
