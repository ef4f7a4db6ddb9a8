#!/usr/bin/env python3
"""`rapt run` on emulated GPUs: steps against the reference, and what is missing.

usage: run_emulated_test.py RAPT EMULATOR CACHE_FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

CACHE, EMULATOR, RAPT = sys.argv.pop(), sys.argv.pop(), sys.argv.pop()
# One tile of few rows and one of many serve most steps here: only values they are compiled for
# make others.
SPEC = {"query_heads": 4, "kv_heads": 2, "head_dim": 32, "dtype": "bfloat16", "page_size": 16}


class RunEmulated(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def step(self, spec, device="emulated-sm80", environment=None, **fields):
        path = os.path.join(self.folder.name, "step.json")
        with open(path, "w") as file:
            json.dump({"spec": {**SPEC, **spec}, **fields}, file)
        return subprocess.run(
            [RAPT, "run", path, "--device", device, "--check", "--json", "--seconds", "0"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "RAPT_CACHE_DIR": CACHE, **(environment or {})},
        )

    def passes(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["backend"], "flash_attention")
        self.assertTrue(report["check"]["passed"])
        # Other roundings than the reference's: both computed something.
        self.assertGreater(report["check"]["worst"], 0)
        return report

    def test_decode_of_several_requests(self):
        report = self.passes(self.step({}, query_len=[1, 1, 1, 0], kv_len=[75, 1, 32, 0]))
        self.assertEqual(report["device"], "emulated sm_80")
        self.assertIsNone(report["isa"])

    def test_chunks_beside_decode_in_a_window_with_lse(self):
        spec = {"window": [15, 0], "lse": True}
        self.passes(self.step(spec, query_len=[70, 1, 9], kv_len=[130, 75, 9]))

    def test_pages_in_other_orders(self):
        for shape, layout in (("kv_pages", "nhd"), ("packed", "hnd")):
            self.passes(
                self.step({}, query_len=[1], kv_len=[40], cache_shape=shape, cache_layout=layout)
            )

    def test_ragged_keys_both_ways_with_sinks_and_softcap(self):
        spec = {"dtype": "float16", "page_size": 0, "kind": "encoder_only"}
        spec |= {"sinks": True, "softcap": 5.0}
        self.passes(self.step(spec, query_len=[20, 3], kv_len=[20, 3]))

    def test_memory_that_the_host_does_not_reach(self):
        driver = {"RAPT_LIBCUDA": EMULATOR, "RAPT_NVRTC": EMULATOR}
        report = self.passes(self.step({}, "cuda:1", driver, query_len=[1, 1], kv_len=[40, 7]))
        self.assertEqual(report["device"], "emulated sm_80")

    def test_what_is_missing_or_refused(self):
        one = {"query_len": [1], "kv_len": [3]}
        none = os.path.join(self.folder.name, "none")
        for result, code, said in (
            (self.step({"dtype": "float32"}, **one), 2, "dtype is float32"),
            (self.step({}, "emulated-sm42", **one), 2, "compute capability 42"),
            (
                self.step({}, environment={"PATH": "/nowhere", "RAPT_CACHE_DIR": none}, **one),
                1,
                "no C++ compiler",
            ),
            (self.step({}, environment={"RAPT_EMULATOR": none}, **one), 1, none),
            (self.step({}, "cuda", {"RAPT_LIBCUDA": none}, **one), 1, none),
        ):
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(said, result.stderr)
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    unittest.main()
