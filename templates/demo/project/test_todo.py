import tempfile
import unittest
from pathlib import Path

import todo


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        todo.FILE = Path(folder.name) / "todo.json"
        todo.main(["add", "read a book"])
        todo.main(["add", "pay the rent!"])


class TestBasics(Case):
    def test_every_item_is_listed(self):
        listed = "\n".join(todo.main(["list"]))
        self.assertIn("read a book", listed)
        self.assertIn("pay the rent!", listed)


class TestUrgent(Case):
    def test_an_item_with_an_exclamation_mark_comes_first(self):
        self.assertEqual(todo.main(["list"]), ["1. pay the rent!", "2. read a book"])


class TestCount(Case):
    def test_the_items_are_counted(self):
        self.assertEqual(todo.main(["count"]), ["2 items"])


class TestDone(Case):
    def test_a_done_item_says_so(self):
        todo.main(["done", "2"])
        self.assertEqual(todo.main(["list"]), ["1. pay the rent!", "2. read a book (done)"])


class TestFind(Case):
    def test_items_are_found_by_a_word_in_any_case(self):
        self.assertEqual(todo.main(["find", "RENT"]), ["1. pay the rent!"])


class TestRemove(Case):
    def test_a_removed_item_is_gone(self):
        todo.main(["remove", "1"])
        self.assertEqual(len(todo.main(["list"])), 1)
