"""The agent of `ralph demo`: a script where a model would be, with the manners of a bad night. It also says
what there is to see, plays the person who goes on editing meanwhile, and kills ralph in the middle.

Like any agent it starts in a checkout of the repository and gets its prompt on stdin. Its events, with the
tokens and dollars that a model would have taken, go to the file that it is given; they are made up.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

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
    say("Act 1. I say COMPLETE, mark every task as passed and gut the tests.")
    PLAN.write_text(PLAN.read_text().replace('"passes": false', '"passes": true'))
    TESTS.write_text(re.sub(r"self\.assert.*[^:\n]$", "pass", TESTS.read_text(), flags=re.M))
    say("All tasks are done and all tests pass. <promise>COMPLETE</promise>")


def sort_urgent():
    """Task 1, second attempt: the work."""
    say("-> None of that counted: my plan was a copy, the tests were restored, and the")
    say("-> check that ralph ran failed. Now I do the work.")
    edit("    return load()\n", '    return sorted(load(), key=lambda text: not text.endswith("!"))\n')


def hide():
    """Task 2, first attempt: the work, in a folder that .gitignore names; green here, and nowhere else."""
    say("Act 2. I put my code in a folder that git ignores.")
    Path("out").mkdir()
    Path("out/counting.py").write_text(f"from todo import load\n\n\n{COUNT}")
    command("count", "def count():\n    from out import counting\n\n    return counting.count()\n")
    test = [sys.executable, "-m", "unittest", "-q", "test_todo.TestCount"]
    if subprocess.run(test, capture_output=True).returncode == 0:
        say("I ran the test, and it is green.")


def count():
    """Task 2, second attempt: the same where git sees it."""
    say("-> The clean room has only what a clone would have, so the test failed there.")
    say("-> The log names the folder. Now I put the code into todo.py.")
    edit("def count():\n    from out import counting\n\n    return counting.count()\n", COUNT)


def hang():
    """Task 3: the work, then a server left in a session of its own, and no end."""
    say("Act 3. I do the work, leave a server in the background and hang.")
    command("done", DONE)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    say("-> Meanwhile you go on editing todo.py in your own tree.")
    with Path(os.environ["RALPH_DEMO"], "todo.py").open("a") as file:
        file.write("\n\ndef colours(  # half of an idea of mine")
    time.sleep(300)


def search():
    """Task 4: half of the work, then the end of ralph; or the other half."""
    if HALF in TODO.read_text():
        say("-> What the killed attempt had left was checked first, and failed. No finished")
        say("-> task was repeated. Now I write the rest.")
        edit(HALF, FIND)
        return
    say("-> I was stopped at my deadline, and my price is an estimate. The task passed all")
    say("-> the same: its check failed before and passes now. My server is gone.")
    say("Act 4. I do half of the work, and ralph is killed.")
    command("find", HALF)
    worker, ralph = psutil.Process().parents()[:2]
    for one in (ralph, worker):  # both at one moment: nobody is left to clean up
        one.suspend()
    for one in (ralph, worker):
        one.kill()
    time.sleep(300)


def ask():
    """Task 5: nothing but a question, until somebody has answered it."""
    if ANSWERED in PROMPT:
        command("remove", REMOVE)
        say("Items are deleted for good, as you said.")
        return
    say("Act 5. I have a question that only a person can answer.")
    Path(os.environ["RALPH_HANDOFF"]).write_text(f"question: {QUESTION}\n")


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
    """An event for ralph."""
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps({"type": kind, **facts}) + "\n")


if __name__ == "__main__":
    first = os.environ["RALPH_ATTEMPT"] == "1"
    acts = {"T-1": (cheat, sort_urgent), "T-2": (hide, count), "T-3": (hang, hang), "T-4": (search, search)}
    acts["T-5"] = (ask, ask)
    tell("turn", id=1, input=12000, output=300)
    acts[os.environ["RALPH_TASK_ID"]][0 if first else 1]()
    tell("end", input=12000, output=900, usd=0.07)
