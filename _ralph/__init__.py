"""The rooms of ralph; `ralph.py` tells the story that uses them."""

__version__ = "0.2.0"
