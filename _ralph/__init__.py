"""The parts of ralph; `ralph.py` is the story that uses them."""

import os
import sys

__version__ = "0.4.0"

# A project can have a json.py where PYTHONPATH leads: Python's own modules come first.
_OWN = os.path.dirname(os.__file__)
sys.path.sort(key=lambda path: path not in (_OWN, f"{_OWN}/lib-dynload"))
