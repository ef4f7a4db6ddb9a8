#!/usr/bin/env python3
"""Fails when an object of src/backends/cpu/isa defines a weak or unique symbol.

usage: check_isa_objects.py librapt_backends.a
"""
import pathlib
import re
import subprocess
import sys


def main():
    isa_folder = pathlib.Path(__file__).resolve().parents[4] / "src/backends/cpu/isa"
    names = {path.name for path in isa_folder.glob("*.cpp")}
    listing = subprocess.run(["nm", "-C", sys.argv[1]], capture_output=True, text=True, check=True)
    found, seen, member = [], set(), None
    for line in listing.stdout.splitlines():
        if header := re.match(r"(.+)\.o:$", line):
            member = header[1]
            seen.add(member)
        elif member in names and (symbol := re.match(r"[0-9a-f]+ ([WVu]) (.+)", line)):
            found.append(f"{member}: {symbol[2]}")
    if not seen & names:
        found.append(f"no object of {isa_folder} in {sys.argv[1]}")
    print("\n".join(found) or f"isa objects: clean ({', '.join(sorted(seen & names))})")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
