#!/usr/bin/env python3
"""Fails when a page shows code that nothing builds, or names a path that is not there.

usage: check_docs.py REPOSITORY

Pages are README.md, CONTRIBUTING.md and docs/**/*.md. The rules:

1. A fenced block of code (cpp, c, cmake, python, sh, console) follows an HTML comment that says
   where it comes from:
       <!-- from examples/attention_cpp/main.cpp: step -->
   The block is, without its indentation, the lines between `begin: step` and `end: step` in that
   file, which is one that tests build or run (below examples/ or tests/, or a file of shell or
   CMake code). Marker lines are left out, and regions may nest. Without `: step` the block is the
   whole file.
2. Instead, a block of sh or console may follow
       <!-- run -->
   It is run from the repository's root when the environment has RAPT_RUN_DOCS=1 (CI), 10 minutes at
   most. Of a console block the lines that begin with `$ ` are run. The paths it names must exist in
   any case.
3. Paths in `backticks` and relative links exist, seen from the root, the page, include/ or src/.
   `*` stands for at least one name. Paths below build/ are not looked at.

Blocks of other languages (text, json, none) are illustrations.
"""
import os
import pathlib
import re
import subprocess
import sys
import textwrap

CODE = {"cpp", "c", "cmake", "python", "sh", "console"}
SHELL = {"sh", "console"}
TIMEOUT_S = 600
FENCE = re.compile(r"^```(\w*)\s*$")
SOURCE = re.compile(r"^<!-- from (\S+?)(?:: (\w+))? -->$")
MARKER = re.compile(r"\b(begin|end): (\w+)")
# A file with a suffix that the repository uses, or anything of two parts.
PATH = re.compile(
    r"^(\.?[\w*-][\w.*+-]*/)*[\w*.-][\w.*+-]*(/|\.(md|hpp|h|cpp|c|py|sh|txt|cmake|json|map|pc))$"
    r"|^\.?[\w*-][\w.*+-]*(/[\w.*+-]+)+$"
)


def pages(root):
    return [
        page for page in (root / "README.md", root / "CONTRIBUTING.md") if page.exists()
    ] + sorted((root / "docs").rglob("*.md"))


def split(text):
    """Prose lines with their numbers; blocks as (line number, language, comment before, text)."""
    prose, blocks, comment, block = [], [], "", None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line.strip())
        if block is None and fence:
            block = (number, fence.group(1), comment, [])
        elif block is not None and line.strip() == "```":
            blocks.append((*block[:3], "\n".join(block[3])))
            block, comment = None, ""
        elif block is not None:
            block[3].append(line)
        else:
            prose.append((number, line))
            if line.strip():
                comment = line.strip()
    return prose, blocks


def excerpt(text, region):
    """The lines of a region, dedented, without markers; None if it is not there."""
    lines, inside, found = [], region is None, region is None
    for line in text.splitlines():
        marker = MARKER.search(line)
        if marker:
            if marker.group(2) == region:
                inside = marker.group(1) == "begin"
                found = True
        elif inside:
            lines.append(line)
    return textwrap.dedent("\n".join(lines)).strip("\n") if found else None


def exists(root, page, path):
    if path.startswith(("build/", "./build/")):
        return True
    folders = (root, page.parent, root / "include", root / "src")
    return any(
        next(folder.glob(path), None) if "*" in path else (folder / path).exists()
        for folder in folders
    )


def commands(language, text):
    if language == "sh":
        return text
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))


def run(root, text):
    """What went wrong, or None. A block that runs the tests does not run the pages again."""
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=root,
            timeout=TIMEOUT_S,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "RAPT_RUN_DOCS": "0"},
        )
    except subprocess.TimeoutExpired:
        return f"is still running after {TIMEOUT_S} s"
    return None if done.returncode == 0 else f"gives exit code {done.returncode}:\n{done.stdout}"


def block_fault(root, page, language, comment, text):
    """What is wrong with a block of code, or None."""
    if comment == "<!-- run -->" and language in SHELL:
        text = commands(language, text)
        for word in re.findall(r"[^\s'\"=();|&<>]+", re.sub(r"#.*", "", text)):
            top = word.removeprefix("./").split("/")[0]
            named = word.startswith("./") or ("/" in word and (root / top).exists())
            if named and not exists(root, page, word):
                return f"names {word}, which is not there"
        return run(root, text) if os.environ.get("RAPT_RUN_DOCS") == "1" else None
    source = SOURCE.match(comment)
    if not source:
        return "has no comment `<!-- from PATH: REGION -->`" + (
            " or `<!-- run -->`" if language in SHELL else ""
        )
    path, region = source.groups()
    if not (root / path).is_file():
        return f"comes from {path}, which is not there"
    if not path.startswith(("examples/", "tests/")) and not path.endswith(
        (".sh", ".cmake", "CMakeLists.txt", ".ci/run")
    ):
        return f"comes from {path}, which no test builds or runs: take it from examples/ or tests/"
    expected = excerpt((root / path).read_text(), region)
    if expected is None:
        return f"comes from region {region} of {path}, which is not there"
    if text.strip("\n") != expected:
        return f"differs from {path}. It should be:\n{expected}"
    return None


def faults(root):
    for page in pages(root):
        name = page.relative_to(root)
        prose, blocks = split(page.read_text())
        for number, language, comment, text in blocks:
            fault = block_fault(root, page, language, comment, text) if language in CODE else None
            if fault:
                yield f"{name}:{number}: this block {fault}"
        for number, line in prose:
            spans = [span for span in re.findall(r"`([^`]+)`", line) if PATH.match(span)]
            links = [
                link.split("#")[0]
                for link in re.findall(r"\]\(([^)\s]+)\)", line)
                if "://" not in link
            ]
            for path in spans + [link for link in links if link]:
                if not exists(root, page, path):
                    yield f"{name}:{number}: {path} is not there"


def main():
    found = list(faults(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "docs: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
