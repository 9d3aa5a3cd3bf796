"""The agent of `ralph demo`: a script where a model would be, with the manners of a bad night.

Like any agent it starts in a checkout of the repository and gets its prompt on stdin.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

TODO, TESTS, PLAN = Path("todo.py"), Path("test_todo.py"), Path("prd.json")

COUNT = """def count():
    return [f"{len(load())} items"]
"""

DONE = """def done(number):
    items = in_order()
    items[int(number) - 1] += " (done)"
    save(items)
    return show()
"""

FIND = """def find(word):
    return [line for line in show() if word.lower() in line.lower()]
"""
HALF = FIND[:40]

REMOVE = """def remove(number):
    items = in_order()
    del items[int(number) - 1]
    save(items)
    return show()
"""
QUESTION = "Shall `remove` delete an item for good, or move it to an archive?"
ANSWERED = "delete it"

PROMPT = sys.stdin.read()


def cheat():
    """Task 1, first attempt: no work, but every flag set and every assertion taken out."""
    PLAN.write_text(PLAN.read_text().replace('"passes": false', '"passes": true'))
    TESTS.write_text(re.sub(r"self\.assert.*[^:\n]$", "pass", TESTS.read_text(), flags=re.M))
    say("All tasks are done and all tests pass. <promise>COMPLETE</promise>")


def sort_urgent():
    """Task 1, second attempt: the work."""
    edit("    return load()\n", '    return sorted(load(), key=lambda text: not text.endswith("!"))\n')
    say("Urgent items are listed first now.")


def hide():
    """Task 2, first attempt: the work, in a folder that .gitignore names; green here, and nowhere else."""
    Path("out").mkdir()
    Path("out/counting.py").write_text(f"from todo import load\n\n\n{COUNT}")
    command("count", "def count():\n    from out import counting\n\n    return counting.count()\n")
    test = [sys.executable, "-m", "unittest", "-q", "test_todo.TestCount"]
    if subprocess.run(test, capture_output=True).returncode == 0:
        say("I ran the test, and it is green.")


def count():
    """Task 2, second attempt: the same where git sees it."""
    edit("def count():\n    from out import counting\n\n    return counting.count()\n", COUNT)
    say("The code is in todo.py now.")


def hang():
    """Task 3: the work, then a server left in a session of its own, and no end."""
    command("done", DONE)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    say("Starting a server to try it out.")
    time.sleep(300)


def search():
    """Task 4: half of the work, then a long think; or the other half."""
    if HALF in TODO.read_text():
        edit(HALF, FIND)
        say("The file was cut off in the middle of a line. Finished it.")
        return
    command("find", HALF)
    say("Half of it is written.")
    time.sleep(300)


def ask():
    """Task 5: nothing but a question, until somebody has answered it."""
    if ANSWERED in PROMPT:
        command("remove", REMOVE)
        say("Items are deleted for good, as you said.")
        return
    Path(os.environ["RALPH_HANDOFF"]).write_text(f"blocked on: {QUESTION}\n")
    say("Two readings are possible, and I must not guess.")


def command(name, code):
    """Add a command to todo.py."""
    edit("\n\nCOMMANDS = {", f'\n\n{code}\n\nCOMMANDS = {{"{name}": {name}, ')


def edit(old, new):
    source = TODO.read_text()
    if old not in source:
        sys.exit(f"todo.py is not as expected: {old!r} is missing")
    TODO.write_text(source.replace(old, new))


def say(words):
    print(words, flush=True)


def tell(kind, **facts):
    """An event for ralph, with the tokens and dollars that a model would have taken; both are made up."""
    print(json.dumps({"type": kind, **facts}), flush=True)


if __name__ == "__main__":
    first = os.environ["RALPH_ATTEMPT"] == "1"
    acts = {"T-1": (cheat, sort_urgent), "T-2": (hide, count), "T-3": (hang, hang), "T-4": (search, search)}
    acts["T-5"] = (ask, ask)
    tell("turn", id=1, input=12000, output=300)
    acts[os.environ["RALPH_TASK_ID"]][0 if first else 1]()
    tell("end", input=12000, output=900, usd=0.07)
