#!/usr/bin/env python3
"""`rapt bench launch` on an emulated GPU: the report's fields.

usage: launch_test.py RAPT CACHE_FOLDER
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CACHE, RAPT = sys.argv.pop(), sys.argv.pop()
SHAPES = (
    "decode tiny heads=4/2 dim=16 keys=40\nprefill tiny heads=4/2 dim=16 page=0 queries=3 keys=5\n"
)


class Launch(unittest.TestCase):
    def test_names_the_device_and_has_each_figure_of_each_shape(self):
        with tempfile.TemporaryDirectory() as folder:
            shapes = pathlib.Path(folder, "shapes.txt")
            shapes.write_text(SHAPES)
            result = subprocess.run(
                [RAPT, "bench", "launch", "--device", "emulated-sm80", "--shapes", str(shapes)]
                + ["--seconds", "0.001", "--json"],
                capture_output=True,
                text=True,
                timeout=100,
                env={**os.environ, "RAPT_CACHE_DIR": CACHE},
            )
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["machine"]["accelerator"], "emulated sm_80")
        self.assertEqual(report["limits"], [])
        seen = [
            (f["shape"].split(",")[1].strip(), f["shape"].split(", ")[-1])
            for f in report["figures"]
        ]
        calls = ["replan", "run", "replan and first run", "run and wait"]
        self.assertEqual(
            seen, [(s, c) for s in ("1 x 40 keys warm", "3 x 5 causal") for c in calls], seen
        )
        for figure in report["figures"]:
            self.assertEqual((figure["phase"], figure["unit"]), ("launch", "us"))
            self.assertEqual(figure["backend"], "flash_attention")
            self.assertGreaterEqual(figure["rounds"], 3)
            self.assertGreater(figure["low"], 0)
            self.assertLessEqual(figure["low"], figure["median"])
        # The emulator does the work within run(), which takes longer than a plan.
        replan, run = report["figures"][:2]
        self.assertGreater(run["median"], replan["median"])


unittest.main()
