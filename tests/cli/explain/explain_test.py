#!/usr/bin/env python3
"""`rapt devices` and `rapt explain` from outside: exit codes, text and JSON.

usage: explain_test.py RAPT [EMULATOR]
"""
import json
import os
import subprocess
import sys
import unittest

RAPT = sys.argv.pop(1)
EMULATOR = sys.argv.pop(1) if sys.argv[1:] else None
BACKENDS = {
    "flash_attention",
    "flashinfer",
    "portable",
    "flex",
    "turboquant",
    "paged_attention",
    "cpu",
    "reference",
}


def rapt(*arguments, **environment):
    return subprocess.run(
        [RAPT, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, **environment},
    )


class Command(unittest.TestCase):
    def test_version_and_help_are_done(self):
        version = rapt("--version")
        self.assertEqual(version.returncode, 0)
        self.assertRegex(version.stdout, r"^rapt \d+\.\d+\.\d+\n$")
        for arguments in (["--help"], ["devices", "--help"], ["explain", "--help"]):
            shown = rapt(*arguments)
            self.assertEqual(shown.returncode, 0)
            self.assertIn("Examples:", shown.stdout)

    def test_bad_arguments_are_2_and_say_what_on_stderr(self):
        for arguments, said in (
            ([], "Examples:"),
            (["nonsense"], "nonsense"),
            (["explain", "--head-dim", "x"], "--head-dim"),
            (["explain", "--device", "h1000"], 'device is "h1000": must be one of cpu'),
            (["explain", "--dtype", "int3"], '--dtype is "int3": must be one of float32'),
            (["explain", "--kv-dtype", "fp9"], '--kv-dtype is "fp9"'),
            (["explain", "--kind", "x"], '--kind is "x": must be one of decoder'),
            (["explain", "--window", "7"], '--window is "7": must be two integers'),
            (["explain", "--query-heads", "7", "--kv-heads", "2"], "num_query_heads is 7"),
            (["explain", "--backend", "nope"], 'backend is "nope": must be auto, flash_attention'),
        ):
            result = rapt(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(said, result.stderr)
            self.assertEqual(result.stdout, "")


class Devices(unittest.TestCase):
    def test_lists_the_table_and_this_machine(self):
        text = rapt("devices")
        self.assertEqual(text.returncode, 0)
        answer = json.loads(rapt("devices", "--json").stdout)
        self.assertEqual(answer["this_machine"]["name"], "cpu")
        known = {device["name"]: device for device in answer["known"]}
        for name in ("cpu", "cpu-amx-bf16", "t4", "h100", "gb10", "sm103", "emulated-sm90"):
            self.assertIn(name, known)
            self.assertIn(name, text.stdout)
        self.assertEqual(known["h100"]["compute_capability"], 90)
        self.assertEqual(known["h100"]["num_sms"], 132)

    @unittest.skipUnless(EMULATOR, "this build has no GPU half, or is a sanitizer's")
    def test_says_why_there_are_no_gpus(self):
        nowhere = {"RAPT_LIBCUDA": "/nowhere/libcuda.so.1", "RAPT_EMULATOR": "/nowhere/emulator.so"}
        answer = json.loads(rapt("devices", "--json", **nowhere).stdout)
        text = rapt("devices", **nowhere)
        self.assertEqual(text.returncode, 0)
        for kind, file in (
            ("gpus", nowhere["RAPT_LIBCUDA"]),
            ("emulated", nowhere["RAPT_EMULATOR"]),
        ):
            self.assertEqual(answer[kind]["devices"], [])
            self.assertIn(file, answer[kind]["why_none"])
            self.assertIn(file, text.stdout)
        refused = rapt("explain", "--device", "cuda:1", **nowhere)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(nowhere["RAPT_LIBCUDA"], refused.stderr)

    @unittest.skipUnless(EMULATOR, "this build has no GPU half, or is a sanitizer's")
    def test_lists_gpus_by_the_names_that_contexts_take(self):
        there = {"RAPT_LIBCUDA": EMULATOR}
        answer = json.loads(rapt("devices", "--json", **there).stdout)
        text = rapt("devices", **there).stdout
        # The emulator in place of NVIDIA's driver: the same devices, by two kinds of names.
        capabilities = [75, 80, 86, 89, 90, 100, 103, 120, 121]
        for kind, names in (
            ("gpus", [f"cuda:{i}" for i in range(len(capabilities))]),
            ("emulated", [f"emulated-sm{capability}" for capability in capabilities]),
        ):
            found = answer[kind]["devices"]
            self.assertEqual([device["device"] for device in found], names)
            self.assertEqual([device["compute_capability"] for device in found], capabilities)
            self.assertIsNone(answer[kind]["why_none"])
            for name in names:
                self.assertRegex(text, rf"\n{name} .* emulated sm_\d+\n")

    def test_the_environment_lowers_the_isa(self):
        answer = json.loads(rapt("devices", "--json", RAPT_CPU_ISA="baseline").stdout)
        self.assertEqual(answer["this_machine"]["isa"], "baseline")
        refused = rapt("devices", RAPT_CPU_ISA="sse9")
        self.assertEqual(refused.returncode, 2)
        self.assertIn('RAPT_CPU_ISA is "sse9": must be one of baseline', refused.stderr)


class Explain(unittest.TestCase):
    def test_defaults_choose_the_cpu(self):
        answer = rapt("explain", "--json")
        self.assertEqual(answer.returncode, 0)
        self.assertEqual(json.loads(answer.stdout)["chosen"]["backend"], "cpu")
        self.assertIn("chosen: cpu", rapt("explain").stdout)

    @unittest.skipUnless(EMULATOR, "this build has no GPU half, or is a sanitizer's")
    def test_an_emulated_gpu_is_one_of_its_compute_capability(self):
        arguments = ["explain", "--head-dim", "64", "--json", "--device"]
        emulated = rapt(*arguments, "emulated-sm80").stdout
        chosen = json.loads(emulated)["chosen"]
        self.assertEqual((chosen["backend"], chosen["version"]), ("flash_attention", 2))
        nominal = rapt(*arguments, "sm80").stdout
        self.assertEqual(emulated.replace("emulated-sm80", "sm80"), nominal)

    @unittest.skipUnless(EMULATOR, "this build has no GPU half, or is a sanitizer's")
    def test_a_gpu_of_this_machine_is_asked_by_its_number(self):
        answer = rapt("explain", "--device", "cuda:1", "--json", RAPT_LIBCUDA=EMULATOR)
        self.assertEqual(json.loads(answer.stdout)["device"], "emulated sm_80")
        missing = rapt("explain", "--device", "cuda:9", RAPT_LIBCUDA=EMULATOR)
        self.assertEqual(missing.returncode, 2)
        self.assertIn("CUDA device 9", missing.stderr)

    def test_a_gpu_names_who_would_be_chosen_and_exits_0(self):
        arguments = [
            "explain",
            "--device",
            "h100",
            "--head-dim",
            "128",
            "--kv-dtype",
            "fp8_e4m3",
            "--sinks",
        ]
        text = rapt(*arguments)
        self.assertEqual(text.returncode, 0)
        self.assertIn(
            "chosen: none; flash_attention 3 would be once its kernels are built", text.stdout
        )
        answer = json.loads(rapt(*arguments, "--json").stdout)
        self.assertIsNone(answer["chosen"])
        self.assertEqual(answer["chosen_once_built"], {"backend": "flash_attention", "version": 3})
        self.assertEqual({verdict["backend"] for verdict in answer["verdicts"]}, BACKENDS)
        for verdict in answer["verdicts"]:
            self.assertEqual(verdict["accepted"], not verdict["reasons"])
            for reason in verdict["reasons"]:
                self.assertIn(reason, text.stdout)

    def test_every_flag_reaches_the_spec(self):
        answer = json.loads(
            rapt(
                "explain",
                "--device",
                "cpu",
                "--head-dim",
                "192",
                "--head-dim-vo",
                "128",
                "--query-heads",
                "16",
                "--kv-heads",
                "4",
                "--dtype",
                "fp16",
                "--kv-dtype",
                "fp16",
                "--page-size",
                "64",
                "--window",
                "127,0",
                "--softcap",
                "30",
                "--alibi",
                "--sinks",
                "--mask",
                "custom",
                "--kind",
                "decoder",
                "--kv-scales",
                "per_head",
                "--lse",
                "--batch-invariant",
                "--layout",
                "HND",
                "--json",
            ).stdout
        )
        spec = answer["spec"]
        self.assertEqual(
            spec,
            {
                "kind": "decoder",
                "num_query_heads": 16,
                "num_kv_heads": 4,
                "head_dim_qk": 192,
                "head_dim_vo": 128,
                "dtype": "float16",
                "kv_format": "float16",
                "page_size": 64,
                "causal": True,
                "window": [127, 0],
                "scale": spec["scale"],
                "softcap": 30.0,
                "alibi": True,
                "sinks": True,
                "custom_mask": True,
                "kv_scales": "per_head",
                "needs_lse": True,
                "batch_invariant": True,
            },
        )
        self.assertAlmostEqual(spec["scale"], 192**-0.5, places=6)
        self.assertEqual(answer["chosen"]["layout"], "HND")
        self.assertEqual(answer["chosen"]["page_size"], 64)
        encoder = json.loads(rapt("explain", "--kind", "encoder_only", "--json").stdout)
        self.assertEqual(encoder["spec"]["page_size"], 0)
        full = json.loads(rapt("explain", "--mask", "full", "--json").stdout)
        self.assertFalse(full["spec"]["causal"])

    def test_a_named_backend_that_refuses_is_2_with_everything_printed(self):
        result = rapt(
            "explain", "--device", "b200", "--head-dim", "512", "--backend", "flash_attention"
        )
        self.assertEqual(result.returncode, 2)
        self.assertIn("head_dim_qk is 512: must be 8-256", result.stdout)
        for backend in BACKENDS:
            self.assertIn(backend, result.stdout)
        self.assertEqual(rapt("explain", "--backend", "reference").returncode, 0)
        self.assertEqual(rapt("explain", "--device", "b200", "--backend", "AUTO").returncode, 0)


if __name__ == "__main__":
    unittest.main()
