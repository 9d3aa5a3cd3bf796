"""What people read is true: README, changelog, docs, help texts and metadata against
the code."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import click
import jinja2
import jinja2.meta
import pytest

import ralph
from _ralph import __version__, text
from _ralph.agents.prompt import VARIABLES
from _ralph.agents.registry import BUILTIN, with_own
from _ralph.errors import Exit, Stop
from _ralph.files import resource
from _ralph.model import NO_LIMIT, Plan, Verdict
from _ralph.state import prd, summary
from _ralph.state.history import LABELS, History
from _ralph.state.limits import Limits
from _ralph.state.summary import Running, Worker
from tests import install_agents, make_docs, transcript
from tests.conftest import ROOT, captured

PAGES = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
DOCUMENTS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *PAGES]
SKILLS = [f"skills/{name}/SKILL.md" for name in ("morning", "night", "plan")]
COMMANDS = ralph.cli.commands
STATES = {"passed", "open", "waiting", "failed", "blocked"}  # of tasks
FOREIGN_OPTIONS = {"--dangerously-skip-permissions", "--user", "--userns"}


PROVED = """\
exit 0 -> test_a_task_that_a_person_adds_while_the_loop_runs_is_worked
exit 1 -> test_a_loop_that_dies_again_and_again_ends_the_run
exit 2 -> test_a_plan_that_no_run_can_use_ends_with_2_and_nothing_happens
exit 3 -> test_those_under_way_finish_when_it_is_asked_to_stop
exit 4 -> test_a_failed_attempt_that_turns_a_red_suite_green_binds_nobody
exit 5 -> test_a_missing_agent_and_one_that_cannot_keep_to_its_permissions_end_with_5
exit 75 -> test_a_second_run_ends_at_once_with_75_and_status_works_meanwhile
exit 129 -> test_a_signal_ends_every_loop_and_one_record_says_so
exit 130 -> test_a_signal_ends_every_loop_and_one_record_says_so
exit 143 -> test_a_signal_ends_every_loop_and_one_record_says_so

run --prd -> test_an_evening_with_three_plans_and_a_morning_with_one_command
run --once -> test_which_agent_works_an_attempt
run --task -> test_with_a_task_that_is_asked_for_no_other_is_worked
run --jobs -> test_tasks_are_worked_side_by_side_and_land_one_after_the_other
run --agent -> test_which_agent_works_an_attempt
run --fallback -> test_which_agent_works_an_attempt
run --judge -> test_a_judge_that_says_no_fails_the_attempt_and_the_next_one_is_told
run --check -> test_a_plan_that_no_run_can_use_ends_with_2_and_nothing_happens
run --prompt -> test_templates_of_ones_own
run --max-iterations -> test_iterations_are_those_of_all_loops
run --max-attempts -> test_a_task_that_fails_three_times_is_blocked_and_its_work_is_parked
run --max-hours -> test_work_that_was_green_at_the_end_of_the_runs_time_is_kept
run --until -> test_the_runs_time_ends_an_agent_that_is_running
run --max-usd -> test_four_loops_never_spend_more_than_the_limit
run --max-tokens -> test_tokens_are_shared_like_dollars
run --max-wait -> test_a_limit_costs_no_attempt_and_ends_with_75_when_not_waiting
run --agent-timeout -> test_at_the_deadline_nothing_is_left_of_any_kind
run --idle-timeout -> test_a_deadline_in_silence_is_a_limit_and_one_with_words_is_an_attempt
run --branch -> test_the_branch_is_the_one_named_else_that_of_the_run_before_else_its_own
run --allow-overage -> test_an_attempt_may_finish_on_paid_extra_usage_and_the_next_does_not_begin
run --full-permissions -> test_an_agent_without_a_sandbox_is_refused_with_two_ways_on
run --wrap -> test_setup_agents_hooks_and_checks_run_behind_it
run --starts-red -> test_an_honest_night_is_not_refused
run --no-awake -> test_no_awake_lets_it_sleep
run --notify -> test_every_event_is_told_with_its_task_its_reason_and_the_sums
run --json -> test_tokens_dollars_and_session_stand_in_record_status_and_summary
run --quiet -> test_quiet_is_not_silent_about_a_failure
run --verbose -> test_a_terminal_shows_words_tools_and_a_line_that_stays
status --format -> test_the_object_of_a_plan_in_every_state
report --output -> test_it_is_written_where_it_says
plan --planner -> test_the_planner_works_in_a_place_of_its_own
plan --force -> test_a_plan_with_open_tasks_is_replaced_only_with_force
add --criterion -> test_add_with_all_that_can_be_said
add --description -> test_add_with_all_that_can_be_said
add --priority -> test_add_with_all_that_can_be_said
add --depends-on -> test_add_with_all_that_can_be_said
retry --answer -> test_an_answer_stands_in_the_next_prompt
init --eject -> test_templates_of_ones_own
doctor --probe -> test_a_probe_is_one_turn_in_cron_s_environment_that_leaves_nothing
clean --force -> test_they_stay_while_a_run_is_at_work_and_once_it_was_killed

# README
Only ralph marks a task, after running the checks itself -> test_a_cheat_does_not_pass_and_stands_in_the_record
What lands is what was tested -> test_a_change_of_one_line_lands_as_git_has_it_and_nothing_else_does
Doing nothing passes nothing -> test_doing_nothing_is_a_no_op
moves only its own branch -> test_on_a_feature_branch_files_branch_and_edits_of_a_person_stay_until_they_land_it
Failed work is kept -> test_a_task_that_fails_three_times_is_blocked_and_its_work_is_parked
no pass is lost or invented -> test_kill_9_at_a_call_loses_nothing_and_invents_nothing
it goes on where you stopped -> test_a_clone_goes_on_where_the_remotes_branch_is
leaves nothing running -> test_after_a_normal_end_nothing_is_left_of_any_kind
Every process has a deadline -> test_deadlines_and_the_answers_of_a_handler
also with a test suite that is partly red -> test_old_failures_block_nobody
Other forms work unchanged -> test_a_file_from_the_wild
ralph init adds how to install -> test_a_plan_gets_what_it_does_not_say
it begins the next plan -> test_the_next_feature_begins_once_everything_passed_and_landed
ralph doctor says which one pays -> test_a_key_that_is_billed_wants_a_bound
A run ends after 12 hours or 50 attempts -> test_defaults_of_the_limits
any command that reads a prompt works -> test_a_plain_command_gets_the_prompt_on_stdin_and_its_words_are_heard
goes on where it stopped -> test_an_attempt_whose_agent_had_started_goes_on_with_one_verdict
if all checks pass there -> test_those_that_are_green_alone_and_red_together

# concepts: an attempt
the lowest priority first -> test_the_order_of_work
copies, which end with the attempt -> test_nothing_that_is_done_to_the_throwaway_git_reaches_home
What setup made is therefore never work -> test_what_checks_and_setup_write_is_neither_work_nor_committed
A link that leads out of the checkout -> test_what_git_ignores_is_set_to_or_cannot_take
and nothing else. Hooks and checks run there -> test_what_a_check_leaves_anywhere_does_not_reach_the_next_candidate
one candidate at a time -> test_who_enters_the_room_is_alone_and_reads_what_others_left

# concepts: when a task passes
even after one has failed -> test_checks_run_in_one_order_even_after_one_has_failed
Such a pass is weak -> test_a_pass_without_a_check_that_went_from_red_to_green_is_weak
needs the first kind -> test_a_flaky_check_and_a_change_of_a_dead_agent_are_no_pass
is flaky: it is named, and is no evidence -> test_a_check_that_turns_green_by_itself_passes_nothing
a database that died -> test_a_database_that_dies_in_the_night_blocks_nobody
nothing guards the night -> test_nobody_is_paid_in_a_night_that_cannot_pass
Mend it; let it report single tests -> test_the_ways_on_name_the_line_that_counts_single_tests
starts red by itself -> test_the_first_evening_of_a_new_project
It binds as soon as it passes -> test_an_honest_night_is_not_refused
a pre-commit hook that refuses the newest commits -> test_a_hook_is_tried_with_what_it_let_pass
that was green on this very commit -> test_what_was_green_on_this_very_commit_is_tried_again_later
is set aside for this run, unless the task is to make it -> test_a_check_that_cannot_start_costs_no_agent
cost twelve runs of the suite -> test_ten_tasks_that_pass_at_once_cost_ten_runs_of_the_suite_one_before_and_one_after
What was green stays green -> test_work_that_breaks_a_test_that_was_green_fails_with_its_name
If all of them passed before, all must pass -> test_how_single_tests_changed
If it passed where it last ran, it must not fail -> test_work_that_breaks_a_test_that_was_green_fails_with_its_name
Tests that are gone are let go -> test_a_task_may_remove_the_tests_that_it_is_allowed_to
Flaky tests do not count -> test_a_test_that_is_flaky_blocks_nobody_and_is_named
A check that reports no test that passed or failed is red -> test_results_that_cannot_be_had_are_red_with_a_sentence_that_helps
is green as a whole or not at all -> test_what_a_check_is_by_its_tests
already done? -> test_two_no_ops_in_a_row_ask_whether_it_is_done_already
goes on from git's conflict markers -> test_unfinished_work_goes_on_from_the_new_tip_with_markers_where_that_conflicts
the third in a row blocks the task -> test_a_loop_that_is_killed_three_times_in_a_row_blocks_its_task
unless a person stopped the run -> test_a_persons_interrupts_block_no_task
a plan may do without checks -> test_a_plan_without_checks_passes_by_its_judge_alone_and_is_weak
the last one starts clean -> test_an_attempt_goes_on_from_unfinished_work_but_the_last_one_starts_clean
ask the same question -> test_what_blocks_a_task
counts attempts from zero again -> test_a_task_that_is_opened_again_begins_at_the_first_rung

# concepts: hooks, branch, final check
What pre-commit rewrites is part of the commit -> test_what_a_hook_makes_and_stages_is_what_checks_see_and_what_lands
A message that a hook refuses ends the run with 2 -> test_a_message_that_a_hook_refuses_is_said_before_an_agent_is_paid
Exactly this commit is checked, and lands -> test_what_is_signed_is_what_the_checks_see
it starts at the remote's branch of that name -> test_a_branch_that_a_remote_has_begins_there_as_after_git_switch
After a squash merge its old commits are parked -> test_a_branch_that_was_squashed_begins_again_at_head_and_its_commits_stay
a run refuses to start, with 2, and during one passes wait -> test_a_branch_that_somebody_has_checked_out_is_refused_at_the_start
ralph marks the task again -> test_what_landed_stays_passed_where_git_takes_plan_and_log_back
with another title its attempts count from zero -> test_a_changed_title_and_another_task_start_from_zero
a clone of the branch passes them -> test_a_task_from_init_to_a_green_clone
A run that is cut short leaves this to the next one -> test_a_run_that_was_cut_short_leaves_its_final_check_due
the second time it is blocked as conflicting -> test_a_pass_that_is_broken_a_second_time_is_left_to_a_person
no task loses its mark, and the run ends with 4 -> test_what_is_green_in_the_room_and_red_in_one_made_anew_sets_nobody_back
transcripts and logs of the last 50 attempts -> test_the_folder_of_logs_is_ignored_and_holds_the_newest_attempts
the last 50 for each plan -> test_the_newest_fifty_of_a_plan_are_kept_and_another_plan_s_stay

# the plan
the planner is asked once more -> test_a_check_that_is_green_before_the_work_is_told_the_planner_once
the command exits with 4 -> test_open_questions_end_with_4_and_stand_in_the_plan
While it is not valid, nothing new starts -> test_a_plan_that_breaks_at_night_is_waited_for
but not during an attempt at that task -> test_a_pass_that_appears_while_its_task_is_worked_is_set_back_and_named
leaves it out of the final check -> test_identical_checks_run_once_and_a_once_is_not_run_at_the_end
are restored from the branch -> test_protected_files_are_put_back_as_an_edit_of_the_tree
Name it in the task's allow -> test_work_that_is_all_left_out_says_what_and_what_lets_it_in
is marked (changed tests) -> test_settings_that_only_pretend_to_run_tests_are_marked

# setup
It runs only in a new checkout -> test_how_often_setup_runs_in_a_night
setup that fails ends the run with 2 -> test_red_at_the_start_no_agent_is_paid
ralph waits and tries again -> test_red_later_on_the_branch_s_own_files_it_is_waited_for
names the checkout -> test_a_value_that_names_home_names_the_place
A .venv that setup made is active -> test_what_setup_made_is_active
but never what an agent changed without an allow -> test_bytes_that_an_agent_changed_are_never_trusted
Without your own mise trust -> test_what_home_does_not_trust_no_place_trusts
Checkouts share nothing -> test_what_a_variable_is_in_a_place
would test your files instead of the work -> test_what_leads_home_is_refused_by_both
lacks a program, a file or trust here -> test_what_a_red_check_misses_and_home_has
is a small number that no other checkout -> test_a_place_has_a_name_and_a_small_number
Copies are never committed -> test_files_to_carry_over_are_copied_and_never_committed
leaves these caches there -> test_kept_paths_stay

# a night
keeps the machine awake -> test_sleep_is_held_off_until_the_run_ends
the run does not start, or ends with 4 when the report is missing -> test_a_limit_and_a_result_that_does_not_report_what_is_limited_end_the_run
at least as much as the dearest one -> test_what_an_agent_that_died_with_ralph_costs
Once a budget is spent -> test_what_is_used_of_the_limits_and_a_budget_that_is_spent
When one is reached, it is blocked and the others go on -> test_a_task_with_a_limit_of_its_own_is_blocked_there_and_the_others_go_on
tasks with other agents go on -> test_a_providers_limit_holds_back_its_own_tasks_and_no_others
It is never used because work failed -> test_which_agent_works_an_attempt
if it fails, the run says so and goes on -> test_a_notify_command_that_fails_costs_one_sentence

# agents, isolation, several at once
reads it from the agent's own events -> test_a_recorded_run
Three tasks in a row that were denied -> test_one_task_that_is_denied_does_not_end_the_run_and_three_in_a_row_do
Secrets are removed from the log, prompts and the report -> test_secrets_of_the_environment_stay_out_of_notes_and_prompts
A command can write to its checkout and to nothing else -> test_home_is_hidden_and_only_the_checkout_can_be_written
at the next start for what a kill -9 left -> test_what_a_kill_of_everything_left_is_ended_by_the_next_start_or_said
one runs alone until an attempt has reported its price -> test_the_share_of_each_worker_and_never_more_than_is_left
your uncommitted edits stay -> test_edits_of_the_person_are_kept
it exits with 75 -> test_a_plan_with_a_loop_at_work_is_left_alone
removes the checkouts of this repository's plans -> test_the_places_go_and_nothing_else
only reads, and works during a run -> test_it_only_reads
"""
"""Every exit status, every option (one that run has, too, stands there alone) and what
the documentation promises, word for word; and the test that would be red without it."""


def read(document: str) -> str:
    return (ROOT / document).read_text("utf-8")


def section(document: str, title: str) -> str:
    """The text under a heading, up to the next one of its kind."""
    pattern = rf"^(#+) {re.escape(title)}\n(.*?)(?=^\1 |\Z)"
    found = re.search(pattern, read(document), re.M | re.S)
    assert found, f"{document} has no {title}"
    return found[2]


def named(source: str) -> list[str]:
    """What the rows of its tables and the points of its lists are about: the `words` in
    the first cell, or before the first colon."""
    found = []
    for cell, point in re.findall(r"^(?:\| (.*?) \||- (`.*?): )", source, re.M):
        found += re.findall(r"`(.+?)`", cell or point)
    return found


# ---------------------------------------------------------------- the whole


def test_the_documentation_is_short() -> None:
    assert len(PAGES) <= 14
    assert sum(len(read(document).split()) for document in DOCUMENTS) <= 16_000
    assert sum(len(read(skill).split()) for skill in SKILLS) <= 1_200
    assert len(read("README.md").splitlines()) <= 150
    assert len(read("README.md").split()) <= 1_200


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_and_headings_that_are_linked_exist(document: str) -> None:
    links = r"\]\((?!https?:)([^)#]*)#?([^)]*)\)"
    for target, anchor in re.findall(links, read(document)):
        linked = ROOT / document
        if target:
            linked = linked.parent / target
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.M)
            plain = [re.sub(r"[^\w\- ]", "", title).lower() for title in headings]
            assert anchor in [title.replace(" ", "-") for title in plain], anchor


def test_the_readme_leads_to_every_page() -> None:
    for page in PAGES:
        assert f"({page})" in read("README.md")


# ---------------------------------------------------------------- commands and options


def test_reference_pages_are_made_from_the_code() -> None:
    said = "run: python -m tests.make_docs"
    assert read("docs/prd.md") == make_docs.plan_reference(), said
    assert read("docs/cli.md") == make_docs.command_reference(), said


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "board"])
def test_help_says_what_each_option_does_and_shows_an_example(name: str) -> None:
    command, page = COMMANDS[name], read("docs/cli.md")
    with click.Context(command, info_name=f"ralph {name}") as context:
        usage = command.get_help(context)
    assert usage.startswith(f"Usage: ralph {name}")
    assert re.search(rf"^  .*\bralph {name}\b", usage, re.M)
    assert f"## `ralph {name}" in page
    for option in make_docs.options(command):
        assert option.help
        assert f"`{option.opts[-1]}" in page


@pytest.mark.parametrize("document", sorted({*DOCUMENTS, *SKILLS} - {"CHANGELOG.md"}))
def test_no_command_and_no_option_is_named_that_is_not_there(document: str) -> None:
    options = {"": FOREIGN_OPTIONS | {"--help", "--version"}}
    for name, command in COMMANDS.items():
        options[name] = {"--help"}
        for option in make_docs.options(command):
            options[name] |= {*option.opts}
    for words in ralph_commands(read(document)):
        name, *rest = words.split()
        if name in ("--version", "--help"):
            continue
        assert name in COMMANDS, words
        used = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)}
        assert used <= options[name], words
    used = {*re.findall(r"`(--[a-z][a-z-]*)", read(document))}
    assert used <= set().union(*options.values())


def ralph_commands(source: str) -> Iterator[str]:
    """Every `ralph ...` in the code of a document, without `ralph` and what is in
    quotes."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", source, re.S | re.M)
    code = [inner for kind, inner in blocks if kind in ("", "sh")]
    rest = re.sub(r"^```.*?^```", "", source, flags=re.S | re.M)
    code += re.findall(r"^    (?!\|)(.*)$", rest, re.M)
    code += re.findall(r"`([^`\n]+)`", rest)
    for line in "\n".join(code).splitlines():
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", "WORDS", line.partition(" #")[0])
        for found in re.finditer(r"(?:^|[\s(/])ralph (-?[a-z][^|;&<>()]*)", bare):
            yield found[1].strip()


def test_defaults_of_the_limits() -> None:
    shown = {}
    for row in re.findall(r"^\| (.*) \|$", section("docs/night.md", "Limits"), re.M):
        option, _, default, _ = row.split(" | ")
        name = option.replace("`", "").removeprefix("-j, ").split()[0]
        shown[name.removeprefix("--")] = default
    limits = Limits()
    counted = ["jobs", "max-hours", "max-iterations", "max-attempts"]
    wanted = [limits.jobs, limits.hours, limits.iterations, limits.attempts]
    assert [float(shown[name]) for name in counted] == wanted
    for option in make_docs.options(COMMANDS["run"]):
        name = option.opts[-1].removeprefix("--")
        if name.endswith("-timeout"):
            assert text.seconds(shown[name]) == text.seconds(option.default)
    assert text.seconds(shown["max-wait"]) == limits.max_wait
    assert {limits.until, limits.usd, limits.tokens} == {NO_LIMIT}
    for name in ("until", "max-usd", "max-tokens"):
        assert shown[name] == "none"


# ---------------------------------------------------------------- promises


def plain(source: str) -> str:
    """Prose without its marks, in one line."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", source)
    return " ".join(re.sub(r"[`*|]", " ", words).split()).replace(" ,", ",")


def proofs() -> dict[str, str]:
    """The tests by what they prove."""
    found = {}
    for line in PROVED.splitlines():
        promise, arrow, proof = line.partition(" -> ")
        if arrow:
            found[promise] = proof
    return found


def test_every_promise_is_kept_by_a_test_that_exists() -> None:
    tests = ""
    for path in (ROOT / "tests").rglob("test_*.py"):
        tests += path.read_text("utf-8")
    there = re.findall(r"^def (test_\w+)", tests, re.M)
    assert {*proofs().values()} - {*there} == set()


def test_what_is_promised_stands_in_the_documentation_or_in_the_code() -> None:
    there = {f"exit {int(code)}" for code in Exit}
    of_run = {option.opts[-1] for option in make_docs.options(COMMANDS["run"])}
    for name, command in COMMANDS.items():
        own = {option.opts[-1] for option in make_docs.options(command)}
        if name != "run":
            own -= of_run
        there |= {f"{name} {option}" for option in own}
    assert there - proofs().keys() == set()
    said = " ".join(plain(read(document)) for document in DOCUMENTS)
    assert [words for words in proofs().keys() - there if words not in said] == []


# ---------------------------------------------------------------- tables and examples


def test_exit_codes_verdicts_and_states() -> None:
    for page, title in (("README.md", "Exit codes"), ("docs/many.md", "Files to copy")):
        codes = re.findall(r"^\| ([\d, ]+) \|", section(page, title), re.M)
        assert {*map(int, ",".join(codes).split(","))} == {*map(int, Exit)}
    assert {*named(section("docs/concepts.md", "Verdicts"))} == {*map(str, Verdict)}
    states = named(read("docs/status.md").partition("## The object")[0])
    assert {*states} == STATES | {"running", "next"}


def json_blocks(document: str) -> list[Any]:
    found = re.findall(r"```json\n(.*?)```", read(document), re.S)
    return [json.loads(block) for block in found]


@pytest.mark.parametrize(
    ("document", "number"), [("docs/plan.md", 1), ("docs/setup.md", 4)]
)
def test_plans_that_are_shown_are_good(
    tmp_path: Path, document: str, number: int
) -> None:
    shown = [block for block in json_blocks(document) if "checks" in block]
    assert len(shown) == number
    for block in shown:
        plan = prd.read(json.dumps(block), tmp_path / "prd.json")
        prd.validate(plan)
        assert plan.checks and prd.ready_tasks(plan)


def test_runners_report_with_the_words_that_init_writes() -> None:
    """The commands of the table, but for what a person's own command adds."""
    table = section("docs/plan.md", "Single tests")
    for rule in json.loads(read("templates/detect.json"))["reports"]:
        for words in re.split(r"{command}|\\\d", rule["run"]):
            assert words in table


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan of one task, in a folder of its own."""
    return prd.read('{"tasks": [{"id": "A", "title": "a"}]}', tmp_path / "prd.json")


def fields_of(found: dict[str, Any], above: str = "") -> Iterator[str]:
    """The fields of the object as docs/status.md names them."""
    for name, value in found.items():
        path = f"{above}{name}"
        if path in ("limits", "running"):
            yield from fields_of(value, f"{path}.")
        if path in ("tasks", "running.workers"):
            yield from fields_of(value[0], f"{path}[].")
        if path != "limits":
            yield path


def test_every_field_of_the_object_is_described_once(plan: Plan) -> None:
    at = "2026-11-21 22:00:05"
    worker = Worker(1, "A", 1, "claude", at, 5.0, "/s/work-1")
    run = Running(4711, at, False, False, [worker])
    whole = summary.summarize(plan, History(), Stop("complete", "done"), 1.0, run)
    news = summary.news("passed", "p", "A", "", whole)
    described = named(section("docs/status.md", "The object"))
    only_news = ["event", "project", "task", "text"]
    assert [*news] == [*only_news, *whole.as_object()]
    assert sorted(described) == sorted([*fields_of(whole.as_object()), *only_news])


# ---------------------------------------------------------------- agents, the prompt


def test_the_table_of_agents_is_what_the_rows_say() -> None:
    table = section("docs/agents.md", "Tested agents")
    for name, cli in BUILTIN.items():
        (cells,) = re.findall(rf"^\| `{name}` \| (.*?) \| (.*?) \|", table, re.M)
        version = install_agents.folder(name).name.removeprefix(f"{name}-")
        assert cells[0].endswith(f" {version}")
        assert ("edit" in cli.permissions) == cells[1].startswith("edit")


def test_the_rows_of_agents_that_are_shown_can_be_used(tmp_path: Path) -> None:
    files = sorted((ROOT / "examples/agents").glob("*.json"))
    assert len(files) == 2
    examples = [json.loads(file.read_text("utf-8")) for file in files]
    for shown in [*json_blocks("docs/agents.md"), *examples]:
        document = {**shown, "tasks": [{"id": "A", "title": "a"}]}
        prd.validate(prd.read(json.dumps(document), tmp_path / "prd.json"))
        assert {*with_own(shown["agents"])} >= {*shown["agents"]}


def test_variables_of_a_prompt(tmp_path: Path) -> None:
    listed = named(read("docs/templates.md").partition("## The handoff")[0])
    assert listed == [*VARIABLES]
    source = resource("templates/prompt.md").read_text("utf-8")
    environment = jinja2.Environment()
    environment.filters["fenced"] = text.fenced
    used = jinja2.meta.find_undeclared_variables(environment.parse(source))
    assert used == {*listed}


def test_labels_of_the_handoff() -> None:
    listed = named(section("docs/templates.md", "The handoff"))
    template = resource("templates/prompt.md").read_text("utf-8")
    assert listed == [*LABELS]
    for label in LABELS:
        assert f"\n{label}:" in template


# ---------------------------------------------------------------- the plugin


def test_the_fields_that_a_skill_reads_are_those_of_status(plan: Plan) -> None:
    shown = summary.summarize(plan, History()).as_object()
    named = {*re.findall(r"`(\w+)`", section("skills/morning/SKILL.md", "How it went"))}
    assert len(named) > 8
    assert named <= {*shown, *shown["tasks"][0], *STATES}


# ---------------------------------------------------------------- metadata, Makefile


def test_metadata_is_one() -> None:
    project = tomllib.loads(read("pyproject.toml"))
    block = re.search(r"^# /// script\n(.*?)^# ///$", read("ralph.py"), re.M | re.S)
    assert block
    script = tomllib.loads(re.sub("^# ?", "", block[1], flags=re.M))
    assert script.items() <= project["project"].items()
    assert project["tool"]["hatch"]["version"]["path"] == "_ralph/__init__.py"
    words = [sys.executable, str(ROOT / "ralph.py"), "--version"]
    assert captured(words, ROOT).stdout == f"ralph, version {__version__}\n"
    plugin = json.loads(read(".claude-plugin/plugin.json"))
    (listed,) = json.loads(read(".claude-plugin/marketplace.json"))["plugins"]
    assert (plugin["name"], plugin["version"]) == ("ralph", __version__)
    assert listed["source"] == "./"
    assert plugin["description"] == listed["description"]


def test_make_targets_that_documents_name_exist_and_explain_themselves() -> None:
    explained = {*re.findall(r"^([a-z-]+):.* ## \S", read("Makefile"), re.M)}
    assert explained == {*re.findall(r"^([a-z-]+):", read("Makefile"), re.M)}
    (phony,) = re.findall(r"^\.PHONY: ([a-z -]+)$", read("Makefile"), re.M)
    assert {*phony.split()} == explained
    for document in ("README.md", "CONTRIBUTING.md", "docs/proof.md"):
        targets = {*re.findall(r"(?:`|^    )make ([a-z-]+)", read(document), re.M)}
        assert {"test"} <= targets <= explained


def test_ci_runs_the_tests_last() -> None:
    script = ROOT / ".ci" / "run"
    if not script.exists():
        pytest.skip("an sdist has no .ci")
    assert os.access(script, os.X_OK)
    last = script.read_text("utf-8").splitlines()[-1]
    assert re.search(r" make --no-print-directory test( TESTS=--lf)?$", last)


def test_no_file_names_a_registry_or_somebodys_folder() -> None:
    wrong = re.compile(
        r"\b(pypi\.org|pythonhosted\.org|registry\.npmjs\.org|registry\.yarnpkg\.com"
        r"|deb\.debian\.org|crates\.io|rubygems\.org|proxy\.golang\.org"
        r"|conda\.anaconda\.org)|(?<![\w.~/-])/(?:work|root|home)/"
    )
    listed = captured(["git", "ls-files"], ROOT)
    if listed.returncode:
        pytest.skip("not a clone of the repository")
    for name in listed.stdout.splitlines():
        content = (ROOT / name).read_bytes().decode("utf-8", "ignore")
        assert not wrong.search(content), name


# ---------------------------------------------------------------- the code's folders


def test_folders_use_only_those_below_them() -> None:
    """As CONTRIBUTING says; and no module imports itself in a circle."""
    order = named(section("CONTRIBUTING.md", "Find your way"))
    package = ROOT / "_ralph"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert {*order} == {*folders, "_ralph"}
    needs = {}
    for path in package.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        below = order[order.index(path.parent.name) :]
        for used in imports_of(path, everywhere=True):
            assert folder_of(used) in below, f"{name} imports {used}"
        needs[name] = imports_of(path, everywhere=False) - {name}
        assert path.read_text("utf-8").startswith('"""')
    for name in needs:
        needs[name] &= {*needs}
    assert len([*TopologicalSorter(needs).static_order()]) == len(needs)


def folder_of(module: str) -> str:
    """The folder of a module, by its dotted name."""
    top, *inner = module.split(".")
    if inner and (ROOT / top / inner[0]).is_dir():
        return inner[0]
    return top


def imports_of(path: Path, everywhere: bool) -> set[str]:
    """The modules of ralph that a module imports, by their dotted names; without
    `everywhere` those that it needs to be imported itself."""
    tree = ast.parse(path.read_text("utf-8"))
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name == "ralph"}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                if node.module.split(".")[0] in ("_ralph", "ralph"):
                    found |= {node.module, f"{node.module}.{name.name}"}
    return found


# ---------------------------------------------------------------- the walkthrough


def test_the_walkthrough_is_what_the_commands_print(tmp_path: Path) -> None:
    assert transcript.play(tmp_path.resolve()) == transcript.written()
