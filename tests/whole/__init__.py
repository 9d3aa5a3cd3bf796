"""Whole nights."""
