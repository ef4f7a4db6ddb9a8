#!/usr/bin/env python3
"""`rapt bench` from outside: exit codes, the report's fields, shape files.

usage: bench_test.py RAPT MODEL
"""
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest

RAPT = sys.argv.pop(1)
MODEL = sys.argv.pop(1)


def bench(*arguments):
    return subprocess.run([RAPT, "bench", *arguments], capture_output=True, text=True, timeout=100)


def report_of(*arguments):
    result = bench("cpu", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class BadArguments(unittest.TestCase):
    def test_are_2_and_say_what_on_stderr(self):
        for arguments, said in (
            ([], "subcommand"),
            (["gpu"], "subcommand"),
            (["cpu", "--only", "nope"], "nope"),
            (["cpu", "--isa", "sse9"], '--isa is "sse9": must be baseline'),
            (["cpu", "--threads", "-1"], "--threads"),
            (["cpu", "--seconds", "0"], "--seconds"),
            (["cpu", "--seconds", "nan"], "--seconds"),
            (["generate", "--model", MODEL, "--seconds", "nan"], "--seconds"),
            (
                ["cpu", "--shapes", "/nowhere/shapes.txt"],
                '--shapes is "/nowhere/shapes.txt": cannot be read',
            ),
            (
                ["cpu", "--quick", "--only", "plan", "--out", "/nowhere/out.json"],
                "/nowhere/out.json",
            ),
            (["launch", "--device", "cpu"], "the device is cpu: nothing is launched there"),
            (["launch", "--device", "abacus"], "abacus"),
            (["generate"], "--model is required"),
            (["generate", "--model", "/nowhere/model.gguf"], "/nowhere/model.gguf"),
            (["generate", "--model", MODEL, "--isa", "sse9"], '--isa is "sse9": must be baseline'),
            (["generate", "--model", MODEL, "--decode-tokens", "0"], "--decode-tokens"),
            (["generate", "--model", MODEL, "--prompt-tokens", "600"], "context is 512"),
        ):
            result = bench(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(said, result.stderr)
            self.assertEqual(result.stdout, "")


class TooManyThreads(unittest.TestCase):
    def limited(self, megabytes, *arguments):
        limit = megabytes << 20

        def lower_limit():
            resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, 8 << 20))  # a thread's as well
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        options = {"capture_output": True, "text": True, "timeout": 100, "preexec_fn": lower_limit}
        if subprocess.run([RAPT, "--version"], **options).returncode:
            self.skipTest("a sanitizer's shadow memory takes more than the limit")
        return subprocess.run([RAPT, *arguments, "--model", MODEL], **options)

    def refused(self, result, said):
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, said)

    def test_are_1_and_counted(self):
        # Some are started for loading, not enough for computing.
        result = self.limited(200, "generate", "--threads", "64")
        self.refused(result, r"^rapt: only \d+ of 64 threads could be started .*: ask for fewer$")
        # The engine's or those of the limits beside it, or there is no memory in between.
        for threads in (56, 72, 104):
            arguments = ["bench", "generate", "--seconds", "0.01", "--threads", str(threads)]
            self.refused(self.limited(768, *arguments), rf"only \d+ of {threads} threads|no memory")


class Shapes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "shapes.txt")

    def test_a_wrong_line_is_2_and_named(self):
        for line, said in (
            ("train x keys=1", '"train": must be prefill or decode or plan'),
            ("plan", '"plan": must be followed by a name'),
            ("plan x", '"x": must be followed by keys='),
            ("plan x keys=0", '"keys=0": must be a number from 1'),
            ("plan x keys=", '"keys=": must be'),
            ("plan x keys=8 keys", '"keys": must be'),
            ("plan x keys=8 colour=red", '"colour=red": must be quick, or key=value'),
            ("plan x keys=8 heads=8", '"heads=8": must be query heads/KV heads'),
            ("plan x keys=8 heads=6/4", '"heads=6/4": must be of whole groups'),
            ("plan x keys=8 dtype=int32", '"dtype=int32": must be fp32, fp16 or bf16'),
            ("plan x keys=8 layout=nhd,dhn", '"layout=nhd,dhn": must be nhd or hnd'),
            ("plan x keys=99999999999", "must be a number"),
            ("plan x keys=100000 requests=100000", '"x": must be of at most 2^31 - 1 tokens'),
        ):
            self.file.write_text(f"# a comment\n\n{line}\n")
            result = bench("cpu", "--shapes", str(self.file))
            self.assertEqual(result.returncode, 2, line)
            self.assertIn(f"{self.file}:3: ", result.stderr)
            self.assertIn(said, result.stderr)

    def test_a_file_without_shapes_is_2(self):
        self.file.write_text("plan x keys=8\n")
        for arguments in (["--quick"], ["--only", "decode"]):
            result = bench("cpu", "--shapes", str(self.file), *arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn("no shape is left", result.stderr)

    def test_lists_are_all_their_combinations(self):
        self.file.write_text("plan tiny keys=16,32 batch=decode,mixed requests=2  # four\n")
        figures = report_of("--shapes", str(self.file), "--seconds", "0.001")["figures"]
        shapes = [figure["shape"] for figure in figures]
        self.assertEqual(len(set(shapes)), 8)
        for keys in ("16", "32"):
            for batch in ("decode", "mixed"):
                for call in ("replan", "plan"):
                    self.assertIn(
                        f"tiny bfloat16 32/8 heads D 128, 2 requests of up to {keys} keys, "
                        f"{batch}, page 16, {call}",
                        shapes,
                    )

    def test_every_cache_runs_and_reads_no_poison(self):
        self.file.write_text(
            "prefill tiny heads=4/2 dim=64 queries=16 keys=72 causal=yes,no dtype=fp32,fp16,bf16\n"
            "decode tiny heads=4/2 dim=64 keys=72 requests=3 state=warm "
            "cache=pages_kv,kv_pages,packed layout=nhd,hnd\n"
            "decode tiny heads=4/2 dim=64 keys=72 requests=3 state=warm page=0,72\n"
        )
        report = report_of("--shapes", str(self.file), "--seconds", "0.001", "--threads", "2")
        self.assertEqual(len(report["figures"]), 6 + 6 + 2)
        self.assertIn("fp32 FMA", [limit["name"] for limit in report["limits"]])
        for figure in report["figures"]:
            prefill = figure["phase"] == "prefill"
            self.assertEqual(figure["unit"], "GFLOP/s" if prefill else "GB/s")
            self.assertEqual(len(figure["beside"]), 1 if prefill else 3)
            for beside in figure["beside"]:
                self.assertEqual(beside["unit"], figure["unit"])
                self.assertGreater(beside["share"], 0)


class Report(unittest.TestCase):
    def test_quick_planning_has_every_field(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "report.json")
            report = report_of("--quick", "--only", "plan", "--out", str(path))
            self.assertEqual(json.loads(path.read_text()), report)
        self.assertRegex(report["rapt"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(report["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        machine = report["machine"]
        self.assertTrue(machine["cpu"])
        self.assertIn(machine["isa"], ("baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16"))
        self.assertGreater(machine["threads"], 0)
        for field in ("l1_bytes", "l2_bytes", "l3_bytes", "load_average"):
            self.assertIn(field, machine)
        self.assertEqual(report["limits"], [])
        self.assertGreater(len(report["figures"]), 0)
        for figure in report["figures"]:
            self.assertEqual(figure["phase"], "plan")
            self.assertEqual(figure["backend"], "cpu")
            self.assertEqual(figure["unit"], "us")
            self.assertTrue(figure["plan"].startswith("cpu: "))
            self.assertGreater(figure["low"], 0)
            self.assertLessEqual(figure["low"], figure["median"])
            self.assertLessEqual(figure["median"], figure["high"])
            self.assertGreaterEqual(figure["rounds"], 3)

    def test_text_names_the_machine_and_the_figures(self):
        result = bench("cpu", "--quick", "--only", "plan", "--threads", "1", "--isa", "baseline")
        self.assertEqual(result.returncode, 0)
        self.assertIn("baseline, 1 threads", result.stdout)
        self.assertRegex(result.stdout, r"\d us \(\d+\.\d - \d+\.\d\), \d+ rounds")
        self.assertEqual(result.stderr, "")


class Generate(unittest.TestCase):
    def test_a_model_is_measured_beside_a_read_of_its_weights(self):
        result = bench(
            "generate",
            "--model",
            MODEL,
            "--seconds",
            "0.01",
            "--threads",
            "2",
            "--prompt-tokens",
            "40",
            "--decode-tokens",
            "20",
            "--page-size",
            "7",
            "--json",
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["machine"]["threads"], 2)
        prefill, decode, read = report["figures"]
        self.assertEqual([prefill["phase"], prefill["unit"]], ["prefill", "tokens/s"])
        self.assertEqual([decode["phase"], decode["unit"]], ["decode", "tokens/s"])
        self.assertEqual([read["phase"], read["unit"]], ["decode", "GB/s"])
        self.assertTrue(decode["shape"].endswith("20 tokens after 16"))
        for figure in report["figures"]:
            self.assertEqual(figure["backend"], "cpu")
            self.assertGreater(figure["low"], 0)
            self.assertGreaterEqual(figure["rounds"], 3)
        # 259,328 weights of the layers and the output, fp32; 5 layers of K and V, 4 heads of 8,
        # fp32, of 26 tokens.
        bytes_of_a_token = (
            4 * (5 * (64 * 128 + 64 * 64 + 3 * 64 * 172) + 512 * 64) + 5 * 2 * 4 * 8 * 4 * 26
        )
        self.assertAlmostEqual(
            read["median"] / decode["median"] * 1e9 / bytes_of_a_token, 1, places=6
        )
        (beside,) = read["beside"]
        self.assertEqual(beside["name"], "weights read in sequence")
        self.assertGreater(beside["share"], 0)

    def test_the_text_says_what_takes_the_time(self):
        result = bench("generate", "--model", MODEL, "--seconds", "0.01", "--threads", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(re.findall(r"\d us a token, ", result.stdout)), 3, result.stdout)


if __name__ == "__main__":
    unittest.main()
