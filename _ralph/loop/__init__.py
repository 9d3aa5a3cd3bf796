"""A night."""
