#!/usr/bin/env python3
"""Eight commands that start at once with an empty cache of kernels, one of them killed while it
compiles.

usage: start_together_test.py RAPT
"""
import collections
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

RAPT = sys.argv.pop()
PROCESSES = 8

STEP = {
    "spec": {
        "query_heads": 4,
        "kv_heads": 2,
        "head_dim": 32,
        "dtype": "bfloat16",
        "page_size": 16,
    },
    "query_len": [1, 1],
    "kv_len": [75, 32],
}

# Stands for the C++ compiler and writes down what becomes of a kernel, by the first line of its
# text, which is its key. Whose compiler is the first of all to begin is the victim: it compiles
# until the test is over, or two minutes.
COMPILER = """#!/bin/sh
case "$*" in
*-shared*) c++ "$@" && echo "end $PPID $(head -n 1 kernel.cu)" >> {0}/log ;;
*entries.cpp*)
    echo "begin $PPID $(head -n 1 kernel.cu)" >> {0}/log
    if mkdir {0}/victim 2> /dev/null; then
        echo $PPID > {0}/victim/new && mv {0}/victim/new {0}/victim/pid
        for i in $(seq 1200); do [ -d {0} ] && sleep 0.1 || break; done
        exit 1
    fi
    exec c++ "$@" ;;
*) exec c++ "$@" ;;
esac
"""


def until(condition):
    deadline = time.monotonic() + 60
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("a minute has passed")
        time.sleep(0.01)
    return found


class StartTogether(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache"
        self.compiler = self.folder / "compiler"
        self.compiler.write_text(COMPILER.format(self.folder))
        self.compiler.chmod(stat.S_IRWXU)
        (self.folder / "step.json").write_text(json.dumps(STEP))

    # Waits for the end of its standard input, becomes the command, and gives its report.
    def start(self, gate):
        run = ["run", str(self.folder / "step.json"), "--device", "emulated-sm80"]
        run += ["--check", "--json", "--seconds", "0", "--threads", "1"]
        return subprocess.Popen(
            ["sh", "-c", 'read _; exec "$@"', "sh", RAPT, *run],
            stdin=gate,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "RAPT_CACHE_DIR": str(self.cache),
                "RAPT_CXX": str(self.compiler),
                "TMPDIR": str(self.folder),  # the killed one cannot tidy up
            },
        )

    def passes(self, process):
        out, errors = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 0, errors)
        report = json.loads(out)
        self.assertEqual(report["backend"], "flash_attention")
        self.assertTrue(report["check"]["passed"])

    # How often each kernel's compilation began, and ended.
    def builds(self):
        begun, ended = collections.Counter(), collections.Counter()
        for line in (self.folder / "log").read_text().splitlines():
            what, _, key = line.split(" ", 2)
            (begun if what == "begin" else ended)[key] += 1
        return begun, ended

    def has_open(self, process, folder):
        try:
            files = pathlib.Path(f"/proc/{process.pid}/fd")
            return any(os.readlink(file).startswith(f"{folder}/") for file in files.iterdir())
        except FileNotFoundError:  # closed meanwhile
            return False

    def test_each_kernel_is_built_once_though_one_is_killed(self):
        read, write = os.pipe()
        processes = [self.start(read) for _ in range(PROCESSES)]
        self.addCleanup(lambda: [one.kill() for one in processes])
        os.close(read)
        os.close(write)  # all go on
        pid = self.folder / "victim" / "pid"
        until(pid.exists)
        (victim,) = [one for one in processes if one.pid == int(pid.read_text())]
        survivors = [one for one in processes if one is not victim]
        # They hold the cache's lock file open, in the queue behind the victim.
        until(lambda: all(self.has_open(one, self.cache) for one in survivors))
        first, none = self.builds()
        self.assertEqual((list(first.values()), none), ([1], {}))
        victim.send_signal(signal.SIGKILL)
        # Its compiler lives on, which must hold up nobody.
        for one in survivors:
            self.passes(one)
        self.assertEqual(victim.wait(), -signal.SIGKILL)
        victim.communicate()
        begun, ended = self.builds()
        self.assertGreaterEqual(len(ended), 2)
        self.assertEqual(ended, dict.fromkeys(ended, 1))
        self.assertEqual(begun, ended + first)

        late = self.start(subprocess.DEVNULL)
        self.passes(late)
        self.assertEqual(self.builds(), (begun, ended))  # all from the cache


if __name__ == "__main__":
    unittest.main()
