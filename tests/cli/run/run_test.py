#!/usr/bin/env python3
"""`rapt run` from outside: what it takes, what it refuses, and with which exit code.

usage: run_test.py RAPT
"""
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import unittest

RAPT = sys.argv.pop(1)


def npy(shape, values, descr="<f4", order="False"):
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + values


def safetensors(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def rapt(self, *arguments, **options):
        # The address sanitizer would rather end the process than be out of memory.
        environment = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1"}
        return subprocess.run(
            [RAPT, "run", self.path("step.json"), "--seconds", "0", *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            env=environment,
            **options,
        )

    def step(self, spec=None, arguments=(), **fields):
        """Runs a small fp32 step: three new tokens of one request, one of another."""
        document = {
            "spec": {
                "query_heads": 4,
                "kv_heads": 2,
                "head_dim": 8,
                "dtype": "float32",
                **(spec or {}),
            },
            "query_len": [3, 1],
            "kv_len": [3, 40],
            **fields,
        }
        self.write("step.json", json.dumps(document).encode())
        return self.rapt(*arguments)

    def refused(self, result, said, code=2):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(said, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_a_step_passes_its_check(self):
        for spec in (
            {},
            {"page_size": 0},
            {"window": [4, 0], "sinks": True, "lse": True},
            {"dtype": "float16"},
        ):
            result = self.step(spec, ["--check", "--json"])
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(json.loads(result.stdout)["check"]["passed"])

    def test_refusals_name_the_key_and_the_value(self):
        for spec, said in (
            ({"window": [2**63, 0]}, "spec.window[0] is 9223372036854775808"),
            ({"window": [1]}, "spec.window is [1]"),
            ({"head_dim": 1.5}, "spec.head_dim is 1.5"),
            ({"softcap": 1e308}, "softcap is inf"),
            ({"stripes": 1}, "spec.stripes is no option"),
            # Refused before its tensors are made: there is no such arithmetic here.
            ({"dtype": "float8_e4m3"}, "dtype is float8_e4m3"),
        ):
            self.refused(self.step(spec), said)
        self.refused(self.step(kv_len=[3]), "step.query_len has 2 entries and step.kv_len has 1")
        self.refused(self.step(kv_len=[-3, 1]), "step.kv_len[0] is -3")
        self.refused(
            self.step({"custom_mask": True}, custom_mask_density=1.5),
            "step.custom_mask_density is 1.5",
        )

    def test_devices_that_are_not_here_are_refused(self):
        for device in ("h100", "cpu-baseline", "sm80", "toaster"):
            self.refused(
                self.step(arguments=["--device", device]),
                f'device is "{device}": ',
            )
        self.assertEqual(self.step(arguments=["--device", "CPU"]).returncode, 0)

    def test_json_of_any_depth_is_no_crash(self):
        deep = b"[" * 200000 + b"]" * 200000
        self.write("step.json", b'{"spec": {"query_heads": ' + deep + b"}}")
        self.refused(self.rapt(), "nests deeper")
        self.write("q.safetensors", safetensors(b'{"q": {"dtype": ' + deep + b"}}", b""))
        self.refused(self.step(tensors={"q": "q.safetensors:q"}), "nests deeper")

    def test_a_folder_is_no_step_file(self):
        folder = self.folder.name
        result = subprocess.run([RAPT, "run", folder], capture_output=True, text=True, timeout=30)
        self.assertEqual(result.returncode, 2)
        self.assertIn(f'step is "{folder}": is not a regular file', result.stderr)

    def test_what_may_never_end_is_refused_and_a_shells_pipe_is_read(self):
        os.mkfifo(self.path("fifo"))
        for file in (self.path("fifo"), "/dev/zero"):
            result = subprocess.run([RAPT, "run", file], capture_output=True, text=True, timeout=30)
            self.refused(result, "is not a regular file")
        self.refused(self.step(tensors={"q": "fifo"}), "is not a regular file")
        self.step()
        for file in ("/dev/stdin", "<(cat)"):
            command = f'cat "$2" | "$1" run {file} --seconds 0'
            result = subprocess.run(
                ["bash", "-c", command, "bash", RAPT, self.path("step.json")],
                capture_output=True,
                text=True,
                timeout=30,
            )
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_key_given_twice_is_refused(self):
        self.step()
        with open(self.path("step.json")) as file:
            text = file.read()
        twice = text.replace('"query_len"', '"query_len": [1, 1], "query_len"')
        self.write("step.json", twice.encode())
        self.refused(self.rapt(), 'JSON key "query_len" appears twice')

    def test_times_that_are_no_number_are_refused(self):
        for seconds in ("nan", "-nan", "inf", "-1", "3601"):
            self.refused(self.step(arguments=["--seconds", seconds]), "--seconds")

    def test_tensor_files_that_do_not_fit_are_refused(self):
        data = struct.pack("<128f", *(0.25 * i for i in range(128)))
        entry = {"dtype": "F32", "shape": [4, 4, 8], "data_offsets": [0, 512]}
        self.write("q.npy", npy("(4, 4, 8)", data))
        self.write("q.safetensors", safetensors({"q": entry}, data))
        for file in ("q.npy", "q.safetensors:q"):
            self.assertEqual(self.step(tensors={"q": file}, arguments=["--check"]).returncode, 0)
        for contents, said in (
            (npy("(4, 4, 8)", data)[:-1], "511 bytes long"),
            (npy("(-4, 4, 8)", data), "a size is negative"),
            (npy("(4, 4, 8)", data, order="True"), "Fortran order"),
            (npy("(4, 4, 8)", data, descr="<f8"), "holds <f8"),
            (npy("(4294967296, 4294967296, 8)", data), "overflows"),
            (npy("(4, 32)", data), "the step needs float32[4, 4, 8]"),
        ):
            self.write("q.npy", contents)
            self.refused(self.step(tensors={"q": "q.npy"}), said)
        for change, said in (
            ({"shape": [4, 4, 8.5]}, "8.5"),
            ({"data_offsets": [1, 513]}, "outside the file"),
            ({"data_offsets": [-1, 511]}, "-1"),
            ({"dtype": "F16"}, "F16"),
        ):
            self.write("q.safetensors", safetensors({"q": {**entry, **change}}, data))
            self.refused(self.step(tensors={"q": "q.safetensors:q"}), said)
        for file in ("missing.npy", ".", "/dev/zero"):
            self.refused(self.step(tensors={"q": file}), file + ": ")

    def test_nan_on_both_sides_passes_the_check(self):
        self.write("q.npy", npy("(4, 4, 8)", struct.pack("<128f", *[float("nan")] * 128)))
        result = self.step(tensors={"q": "q.npy"}, arguments=["--check"])
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_what_the_machine_lacks_is_1(self):
        self.refused(
            self.step({"page_size": 1 << 24, "query_heads": 512, "kv_heads": 512, "head_dim": 512}),
            "no memory for a tensor",
            code=1,
        )
        self.step()
        limit = 512 << 20

        def lower_limit():
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        if subprocess.run(
            [RAPT, "--version"], preexec_fn=lower_limit, capture_output=True
        ).returncode:
            self.skipTest("a sanitizer's shadow memory takes more than the limit")
        threads = self.rapt("--threads", "4000", preexec_fn=lower_limit)
        self.refused(threads, "threads could be started", code=1)

    def test_output_that_cannot_be_written_is_1(self):
        self.step()
        with open("/dev/full", "w") as full:
            result = subprocess.run(
                [RAPT, "run", self.path("step.json"), "--seconds", "0"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=30,
            )
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot be written", result.stderr)

    def test_a_reader_that_leaves_is_1_in_silence(self):
        self.step()
        for command in (
            ["devices"],
            ["devices", "--json"],
            ["run", self.path("step.json")],
            ["-h"],
        ):
            reader, writer = os.pipe()
            os.close(reader)
            result = subprocess.run(
                [RAPT, *command], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=30
            )
            os.close(writer)
            self.assertEqual((result.returncode, result.stderr), (1, ""), command)


if __name__ == "__main__":
    unittest.main()
