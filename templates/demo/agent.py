"""The agent of `ralph demo`: a script where a model would be, with the manners of a bad
night. It also says what there is to see, plays the person who goes on editing
meanwhile, and kills ralph in the middle.

Like any agent it starts in a checkout of the repository and gets its prompt on stdin.
It prints some of the lines that Claude Code prints; the price in them is made up.
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
BORROWED = """def count():
    from out import counting

    return counting.count()
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
PROMPT = sys.stdin.read()
FIRST = os.environ["RALPH_ATTEMPT"] == "1"


def list_urgent_first():
    if FIRST:
        say("Act 1. I say COMPLETE, mark every task as passed and gut the tests.")
        plan = PLAN.read_text()
        PLAN.write_text(plan.replace('"passes": false', '"passes": true'))
        tests = TESTS.read_text()
        TESTS.write_text(re.sub(r"self\.assert.*[^:\n]$", "pass", tests, flags=re.M))
        say("All tasks are done and all tests pass. <promise>COMPLETE</promise>")
        return
    say("-> None of that counted: my plan was a copy, the tests were restored, and the")
    say("-> check that ralph ran failed. Now I do the work.")
    urgent = 'sorted(load(), key=lambda text: not text.endswith("!"))'
    edit("    return load()\n", f"    return {urgent}\n")


def count():
    if FIRST:
        say("Act 2. I put my code in a folder that git ignores.")
        Path("out").mkdir()
        Path("out/counting.py").write_text(f"from todo import load\n\n\n{COUNT}")
        add_command("count", BORROWED)
        test = [sys.executable, "-m", "unittest", "-q", "test_todo.TestCount"]
        if subprocess.run(test, capture_output=True).returncode == 0:
            say("I ran the test, and it is green.")
        return
    say("-> The clean room has only what a clone would have, so the test failed there.")
    say("-> The log names the folder. Now I put the code into todo.py.")
    edit(BORROWED, COUNT)


def tick_off():
    say("Act 3. I do the work, leave a server in the background and hang.")
    content = [{"type": "text", "text": "This takes a while."}]
    say(json.dumps({"type": "assistant", "message": {"content": content}}))
    add_command("done", DONE)
    server = [sys.executable, "-c", "import time; time.sleep(300)"]
    subprocess.Popen(server, start_new_session=True)
    say("-> Meanwhile you go on editing todo.py in your own tree.")
    with Path(os.environ["RALPH_DEMO"], "todo.py").open("a") as file:
        file.write("\n\ndef colours(  # half of an idea of mine")
    time.sleep(300)


def find():
    if HALF in TODO.read_text():
        say("-> What the killed attempt had left was checked first, and failed. No")
        say("-> finished task was repeated. Now I write the rest.")
        edit(HALF, FIND)
        return
    say("-> I was stopped at my deadline, and never said what I cost: at least what")
    say("-> others did. The task passed all the same: its check failed before and passes")
    say("-> now. My server is gone.")
    say("Act 4. I do half of the work, and ralph is killed.")
    add_command("find", HALF)
    time.sleep(0.5)  # so that these words are shown
    worker, ralph = psutil.Process().parents()[:2]
    for one in (ralph, worker):  # both at one moment: nobody is left to clean up
        one.suspend()
    for one in (ralph, worker):
        one.kill()
    time.sleep(300)


def remove():
    if "delete it" in PROMPT:
        add_command("remove", REMOVE)
        say("Items are deleted for good, as you said.")
        return
    say("Act 5. I have a question that only a person can answer.")
    Path(os.environ["RALPH_HANDOFF"]).write_text(f"question: {QUESTION}\n")


def add_command(name, code):
    edit("\n\nCOMMANDS = {", f'\n\n{code}\n\nCOMMANDS = {{"{name}": {name}, ')


def edit(old, new):
    source = TODO.read_text()
    if old not in source:
        sys.exit(f"todo.py is not as expected: {old!r} is missing")
    TODO.write_text(source.replace(old, new))


def say(words):
    print(words, flush=True)


ACTS = {
    "T-1": list_urgent_first,
    "T-2": count,
    "T-3": tick_off,
    "T-4": find,
    "T-5": remove,
}
if __name__ == "__main__":
    ACTS[os.environ["RALPH_TASK_ID"]]()
    ends = {"subtype": "success", "is_error": False, "total_cost_usd": 0.07}
    say(json.dumps({"type": "result", **ends}))
