"""A JSON text is edited where it stands: one member, and no other byte."""

from __future__ import annotations

import json

import pytest

from _ralph.state import jsontext

LINES = '{\n  "a": 1,\n  "b": [ {"x": "}"}, {"x": 2} ]\n}\n'
MARKED = "\ufeff" + LINES


@pytest.mark.parametrize(
    ("source", "path", "rest"),
    [
        (LINES, (), "{\n"), (LINES, ("a",), "1,"), (LINES, ("b",), "[ {"), (LINES, ("b", 1), '{"x": 2}'),
        (LINES, ("b", 0, "x"), '"}"'), (MARKED, ("b", 1, "x"), "2}"),
    ],
)  # fmt: skip
def test_where_a_value_begins(source: str, path: tuple[str | int, ...], rest: str) -> None:
    assert source[jsontext.place(source, *path) :].startswith(rest)


@pytest.mark.parametrize(
    ("source", "key", "value", "wanted"),
    [
        ('{"a": 1, "b": 2}', "a", True, '{"a": true, "b": 2}'),
        ('{"a" : {"b": [1]} , "b": 2}', "a", None, '{"a" : null , "b": 2}'),
        ('{"a": 1}', "n", "ü", '{"a": 1, "n": "ü"}'),
        ('{\n  "a": 1,\n  "b": 2\n}', "n", 3, '{\n  "a": 1,\n  "b": 2,\n  "n": 3\n}'),
        ('{\r\n\t"a": 1\r\n}', "n", 3, '{\r\n\t"a": 1,\r\n\t"n": 3\r\n}'),
        ('{"a": "x", "a b": "\\"a\\": 1"}', "a b", "y", '{"a": "x", "a b": "y"}'),
    ],
)  # fmt: skip
def test_a_member_is_set(source: str, key: str, value: object, wanted: str) -> None:
    assert jsontext.set_member(source, 0, key, value) == wanted
    assert json.loads(wanted)[key] == value


@pytest.mark.parametrize(
    ("key", "wanted"),
    [("a", '{ "b": 2, "c": [3]}'), ("b", '{ "a": 1, "c": [3]}'), ("c", '{ "a": 1, "b": 2}')],
)
def test_a_member_is_removed(key: str, wanted: str) -> None:
    assert jsontext.remove_member('{ "a": 1, "b": 2, "c": [3]}', 0, key) == wanted


def test_entries_are_changed_by_their_index() -> None:
    at = jsontext.place(LINES, "b")
    changed = jsontext.change_entries(LINES, at, {1: lambda entry: entry.replace("2", "3")})
    assert changed == LINES.replace("2}", "3}")
    assert jsontext.change_entries(LINES, at, {}) == LINES


@pytest.mark.parametrize(
    ("source", "all_anew", "wanted"),
    [
        ('[{"a": 1}]', False, '[{"a": 1}, {"n": [1]}]'),
        ('[{"a": 1}, {"a": 2}]', True, '[{"n": [1]}]'),
        ('[\n  {\n    "a": 1\n  }\n]', False, '[\n  {\n    "a": 1\n  },\n  {\n    "n": [\n      1\n    ]\n  }\n]'),
        ('[\r\n{"a": 1}\r\n]', False, '[\r\n{"a": 1},\r\n{"n": [1]}\r\n]'),
    ],
)  # fmt: skip
def test_entries_are_added_in_the_form_of_those_that_are_there(
    source: str, all_anew: bool, wanted: str
) -> None:
    assert jsontext.add_entries(source, 0, [{"n": [1]}], all_anew) == wanted


@pytest.mark.parametrize(("value", "wanted"), [("ü", '"ü"'), ("\ud800", '"\\ud800"'), ([1], "[1]")])
def test_letters_are_readable_where_they_can_be_written(value: object, wanted: str) -> None:
    assert jsontext.dump(value) == wanted
    wanted.encode("utf-8")
