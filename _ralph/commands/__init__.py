"""What people ask for around a night."""
