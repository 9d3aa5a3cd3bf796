"""A to-do list in one file: `todo.py add TEXT`, `todo.py list`."""

import json
import sys
from pathlib import Path

FILE = Path("todo.json")


def load():
    return json.loads(FILE.read_text()) if FILE.exists() else []


def save(items):
    FILE.write_text(json.dumps(items, indent=2))


def in_order():
    return load()


def add(text):
    save([*load(), text])
    return show()


def show():
    return [f"{number}. {text}" for number, text in enumerate(in_order(), 1)]


COMMANDS = {"add": add, "list": show}


def main(words):
    name, *rest = words or ["list"]
    return COMMANDS[name](*rest)


if __name__ == "__main__":
    print("\n".join(main(sys.argv[1:])))
