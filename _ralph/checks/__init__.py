"""What passes."""
