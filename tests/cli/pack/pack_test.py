#!/usr/bin/env python3
"""`rapt pack` from outside, with a compiler that takes no time: files of models, packs, refusals.

usage: pack_test.py RAPT LIBRAPT FAKE_LIBNVRTC FAKE_LIBCUDA REPOSITORY
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

REPOSITORY, LIBCUDA, NVRTC, LIBRAPT, RAPT = (
    pathlib.Path(sys.argv.pop()).resolve() for _ in range(5)
)
ARCHITECTURES = "80,89,90a,100a,120a"  # of the core pack
MODEL = "tiny heads=8/2 dim=64\n"


class Pack(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.models, self.pack = self.folder / "models.txt", self.folder / "some.rpk"

    def rapt(self, *arguments, **environment):
        return subprocess.run(
            [RAPT, "pack", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "RAPT_NVRTC": str(NVRTC), **environment},
        )

    def build(self, text, *arguments, arch="90", **environment):
        self.models.write_text(text)
        models = ("--models", self.models, "-o", self.pack)
        return self.rapt("--arch", arch, *models, *arguments, **environment)

    def kernels(self, text, arch="90"):
        """The keys' values by name, of each attention kernel that the text brings."""
        result = self.build(text, "--json", arch=arch)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        kernels = json.loads(result.stdout)["kernels"]
        attention = [one["key"].split() for one in kernels if one["key"].startswith("attention")]
        return [dict(word.split("=") for word in words[2:]) for words in attention]

    def refused(self, result, *said, code=2):
        self.assertEqual(result.returncode, code, result.stderr)
        for text in said:
            self.assertIn(text, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual([path for path in self.folder.iterdir() if path != self.models], [])

    def test_a_line_is_every_combination_of_its_lists(self):
        text = "# two\n\none heads=8/2 dim=64 page=0,7 dtype=bf16,fp16 # end\n"
        text += "two heads=9/3 dim=96 dim_vo=64 softcap=30 alibi sinks custom_mask\n"
        kernels = self.kernels(text)
        self.assertEqual(len(kernels), 4 * (4 + 1))
        first = [one for one in kernels if one["group"] == "4"]
        self.assertEqual(
            {(one["page_size"], one["element"]) for one in first},
            {("0", "Bf16"), ("0", "F16"), ("7", "Bf16"), ("7", "F16")},
        )
        for one in first:
            self.assertEqual((one["head_dim_qk"], one["head_dim_vo"]), ("64", "64"))
        for one in kernels:
            second = one["group"] == "3"
            for option in ("softcap", "alibi", "sinks", "custom_mask"):
                self.assertEqual(one[option], "true" if second else "false")
            if second:
                self.assertEqual((one["head_dim_qk"], one["head_dim_vo"]), ("96", "64"))
                self.assertEqual((one["page_size"], one["element"]), ("16", "Bf16"))

    def test_a_wrong_line_is_2_and_named(self):
        for line, said in (
            ("heads=8/2 dim=64", '"heads=8/2": must be a model\'s name'),
            ("x", '"x": must be followed by heads= and dim='),
            ("x heads=8/2", '"x": must be followed by heads= and dim='),
            ("x heads=8 dim=64", '"heads=8": must be query heads/KV heads'),
            ("x heads=8/3 dim=64", '"heads=8/3": must be of whole groups'),
            ("x heads=8/2 dim=", '"dim=": must be a number from 1'),
            ("x heads=8/2 dim=64,0", '"dim=64,0": must be a number from 1'),
            ("x heads=8/2 dim=64 page=-1", '"page=-1": must be a number from 0'),
            ("x heads=8/2 dim=64 dtype=fp32", '"dtype=fp32": must be fp16 or bf16'),
            ("x heads=8/2 dim=64 softcap", '"softcap": must be a number above 0'),
            ("x heads=8/2 dim=64 softcap=1e30", '"x": must be a valid spec: softcap'),
            ("x heads=8/2 dim=64 sinks=1", '"sinks=1": must be alibi, sinks or custom_mask'),
            ("x heads=8/2 dim=64 window=9", '"window=9": must be alibi, sinks or custom_mask'),
        ):
            self.refused(self.build(f"{MODEL}\n{line}\n"), f"{self.models}:3: ", said)
        self.refused(self.build("# none\n"), f"{self.models} has no model")

    def test_bad_arguments_are_2(self):
        self.models.write_text(MODEL)
        whole = ("--arch", "90", "--models", self.models, "-o", self.pack)
        for arguments, said in (
            ((), "needs --arch, --models and --output"),
            (whole[:4], "needs --arch, --models and --output"),
            (whole[2:], "needs --arch, --models and --output"),
            ((*whole, "--list", self.pack), "excludes"),
            ((*whole, "--threads", "-1"), "--threads"),
            ((*whole, "--arch", "95"), '"95": no device that Rapt knows'),
            (("--arch", "ada", *whole[2:]), 'architecture is "ada"'),
            (("--arch", "75", *whole[2:]), "specs[0] on t4"),
            ((*whole[:2], "--models", "/nowhere/m.txt", *whole[4:]), '"/nowhere/m.txt": cannot'),
            ((*whole[:2], "--models", self.folder, *whole[4:]), "is not a regular file"),
            ((*whole[:4], "-o", self.folder / "none" / "a.rpk"), "there is no folder"),
            ((*whole[:4], "-o", self.folder), "is a folder"),
            (("--list", "/nowhere/a.rpk"), "/nowhere/a.rpk"),
            (("--list", self.models), "is no pack of kernels"),
        ):
            self.refused(self.rapt(*arguments), said)

    def test_what_does_not_compile_is_1_and_leaves_nothing(self):
        said = ("sm_80 ", "tile_rows=16: spills: 24 bytes stored, 24 bytes loaded")
        self.refused(self.build(MODEL, arch="80", FAKE_NVRTC_SPILLS="tile_rows=16"), *said, code=1)
        said = ("kernel write_kv sm_90 does not compile", "told to fail")
        self.refused(self.build(MODEL, FAKE_NVRTC_FAILS="write_kv"), *said, code=1)
        self.refused(self.build(MODEL, RAPT_NVRTC="/nowhere/nvrtc.so"), "/nowhere/nvrtc.so", code=1)

    def test_a_pack_is_listed_as_it_was_built(self):
        built = self.build(MODEL, "--json", "--threads", "3")
        listed = self.rapt("--list", self.pack, "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(json.loads(listed.stdout), json.loads(built.stdout))
        self.assertEqual(json.loads(built.stdout)["pack"], str(self.pack))
        for kernel in json.loads(listed.stdout)["kernels"]:
            self.assertEqual(kernel["registers"], 168)  # as the fake compiler says
            self.assertEqual(kernel["static_shared_bytes"], 128)
            self.assertEqual(kernel["spill_store_bytes"] + kernel["spill_load_bytes"], 0)
            self.assertEqual(kernel["messages"], [])
            self.assertGreater(kernel["packed_bytes"], 0)
            self.assertRegex(kernel["hash"], "^[0-9a-f]{32}$")
        again = self.build(MODEL)
        self.assertEqual(again.returncode, 0)
        self.assertRegex(again.stdout, r"some\.rpk: 8 kernels, .* at most 168 registers\n$")
        self.assertEqual(again.stderr, "")
        table = self.rapt("--list", self.pack).stdout.splitlines()
        self.assertEqual(len(table), 1 + 8 + 1)
        self.assertIn("merge_rows sm_90 element=Bf16", table[5])

    def test_the_core_pack_has_as_many_kernels_as_it_says(self):
        core = (REPOSITORY / "shapes/core.txt").read_text()
        told = dict(re.findall(r"sm_(\d+): (\d+) kernels", core))
        self.assertEqual(set(told), {"80", "89", "90", "100", "120"})
        result = self.build(core, "--json", arch=ARCHITECTURES)
        self.assertEqual(result.returncode, 0, result.stderr)
        keys = [kernel["key"] for kernel in json.loads(result.stdout)["kernels"]]
        for architecture, count in told.items():
            found = [key for key in keys if f" sm_{architecture} " in key + " "]
            self.assertEqual(len(found), int(count), architecture)

    @unittest.skipIf(LIBRAPT.suffix == ".a", "a static library has no folder of its own")
    def test_the_core_pack_is_found_beside_the_library(self):
        step = self.folder / "step.json"
        spec = {"query_heads": 8, "kv_heads": 2, "head_dim": 64, "dtype": "bfloat16"}
        step.write_text(json.dumps({"spec": spec, "query_len": [1, 300], "kv_len": [900, 300]}))
        (self.folder / "rapt").mkdir()
        shutil.copy(LIBRAPT, self.folder / "librapt.so.0")
        self.pack = self.folder / "rapt" / "core.rpk"

        def run():
            return subprocess.run(
                [RAPT, "run", step, "--device", "cuda", "--seconds", "0"],
                capture_output=True,
                text=True,
                timeout=100,
                env={
                    **os.environ,
                    "LD_LIBRARY_PATH": str(self.folder),
                    "RAPT_LIBCUDA": str(LIBCUDA),
                    "RAPT_NVRTC": "/nowhere/nvrtc.so",
                    "RAPT_CACHE_DIR": str(self.folder / "cache"),
                },
            )

        without = run()
        self.assertEqual(without.returncode, 1)
        self.assertIn("is in no pack", without.stderr)
        self.assertEqual(self.build(MODEL).returncode, 0)
        found = run()
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertNotIn("compiling", found.stderr)

    def test_the_commands_of_the_page(self):
        (self.folder / "rapt").symlink_to(RAPT)
        done = subprocess.run(
            ["bash", "-eu", pathlib.Path(__file__).with_name("pack.sh")],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=100,
            env={
                **os.environ,
                "RAPT_NVRTC": str(NVRTC),
                "PATH": f"{self.folder}:{os.environ['PATH']}",
            },
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("my_models.rpk: ", done.stdout)


if __name__ == "__main__":
    unittest.main()
