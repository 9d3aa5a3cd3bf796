"""Tests of what passes."""
