#!/usr/bin/env python3
"""check_docs.py finds what it should, and nothing else."""
import os
import pathlib
import tempfile
import unittest

import check_docs

SOURCE = """int before;
// begin: outer
  int a;
  // begin: inner
    int b;
  // end: inner
// end: outer
"""


class CheckDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("docs", "examples", "include/rapt", "src"):
            (self.root / name).mkdir(parents=True)
        (self.root / "examples/a.cpp").write_text(SOURCE)
        (self.root / "src/a.cpp").write_text(SOURCE)
        (self.root / "include/rapt/a.hpp").touch()
        os.environ.pop("RAPT_RUN_DOCS", None)

    def faults(self, page):
        (self.root / "docs/page.md").write_text(page)
        return list(check_docs.faults(self.root))

    def test_accepts_excerpts_dedented_and_without_markers(self):
        self.assertEqual(
            self.faults("<!-- from examples/a.cpp: outer -->\n```cpp\nint a;\n  int b;\n```\n"), []
        )
        self.assertEqual(
            self.faults("<!-- from examples/a.cpp: inner -->\n\n```cpp\nint b;\n```\n"), []
        )

    def test_refuses_code_from_nowhere(self):
        for page in (
            "```cpp\nint a;\n```\n",
            "Text.\n```sh\ntrue\n```\n",
            "<!-- run -->\n```cpp\nint a;\n```\n",
        ):
            self.assertIn("has no comment", self.faults(page)[0])

    def test_refuses_excerpts_that_differ(self):
        self.assertIn(
            "differs", self.faults("<!-- from examples/a.cpp: inner -->\n```cpp\nint c;\n```\n")[0]
        )
        self.assertIn(
            "region x", self.faults("<!-- from examples/a.cpp: x -->\n```cpp\nint b;\n```\n")[0]
        )
        self.assertIn(
            "not there", self.faults("<!-- from examples/b.cpp: x -->\n```cpp\nint b;\n```\n")[0]
        )
        self.assertIn(
            "no test builds",
            self.faults("<!-- from src/a.cpp: inner -->\n```cpp\nint b;\n```\n")[0],
        )

    def test_a_comment_serves_one_block(self):
        block = "```cpp\nint b;\n```\n"
        self.assertEqual(
            len(self.faults("<!-- from examples/a.cpp: inner -->\n" + block + block)), 1
        )

    def test_runs_shell_blocks_only_when_asked(self):
        page = (
            "<!-- run -->\n```console\n$ touch build-trace\nsome output\n```\n"
            "<!-- run -->\n```sh\nexit 3\n```\n"
        )
        self.assertEqual(self.faults(page), [])
        self.assertFalse((self.root / "build-trace").exists())
        os.environ["RAPT_RUN_DOCS"] = "1"
        self.assertIn("exit code 3", self.faults(page)[0])
        self.assertTrue((self.root / "build-trace").exists())

    def test_checks_the_paths_of_shell_blocks(self):
        self.assertEqual(
            self.faults("<!-- run -->\n```sh\ncat examples/a.cpp build/out -I/usr/x\n```\n"), []
        )
        self.assertIn("./b.sh", self.faults("<!-- run -->\n```sh\n./b.sh\n```\n")[0])
        self.assertIn(
            "examples/c.cpp", self.faults("<!-- run -->\n```sh\ncat examples/c.cpp\n```\n")[0]
        )

    def test_checks_paths_in_prose(self):
        self.assertEqual(
            self.faults(
                "`examples/a.cpp`, `rapt/a.hpp`, `examples/*.cpp`, `docs/`, `build/x`, `a + b`, "
                "`Plan::run`, [page](page.md#part), [out](https://example.org/x)\n"
            ),
            [],
        )
        for path in ("`examples/b.cpp`", "`b.hpp`", "`examples/*.py`", "[page](other.md)"):
            self.assertEqual(len(self.faults(path + "\n")), 1, path)

    def test_takes_other_languages_as_illustrations(self):
        self.assertEqual(self.faults("```text\nanything\n```\n```\nanything\n```\n"), [])


if __name__ == "__main__":
    unittest.main()
