#!/usr/bin/env python3
"""Fails when a folder of src/ includes one it does not stand on, or a CUDA header.

usage: check_layers.py REPOSITORY
"""
import pathlib
import re
import sys

# Each layer with the layers it may include, directly. `api` implements the public headers.
ALLOWED = {
    "core": set(),
    "kernels": set(),  # device text: only files below src/kernels, named from there
    "emulator": {"core", "device", "launch", "jit"},  # all but core: driver/
    "device": {"core"},
    "problem": {"core"},
    "cache": {"core"},
    "select": {"core", "device", "problem", "cache"},
    "plan": {"core", "device", "problem", "cache"},
    "launch": {"core", "device"},
    "jit": {"core", "device", "launch"},
    "backends": {"core", "device", "problem", "cache", "select", "plan", "launch", "jit"},
    "sampling": {"core", "device", "problem"},
    "api": {"core", "device", "problem", "cache", "select", "plan", "backends", "sampling"},
    "c_api": {"core"},
}
# None may: launch/ and jit/ declare what they call of libcuda and NVRTC, which they load at run
# time.
CUDA = re.compile(r'#\s*include\s*[<"](cuda|nvrtc|cublas|nccl|driver_types)')
ANY_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]+[>"])', re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([a-z0-9_]+)/([^"]+)"', re.M)


def device_text_violations(root):
    """NVRTC takes device text as it stands; the emulator has a ptx/ of its own for it."""
    kernels = root / "src" / "kernels"
    for path in sorted(kernels.rglob("*.cuh")):
        if path.parent == kernels:
            yield f"{path}: device text lies in folders, else its ptx/ is never the emulator's"
        for name in ANY_INCLUDE.findall(path.read_text()):
            if not (kernels / name.strip('"')).is_file():
                yield f"{path}: device text includes {name}"
    device, emulated = (
        {path.name for path in (root / "src" / layer / "ptx").glob("*.cuh")}
        for layer in ("kernels", "emulator")
    )
    for name in sorted(device ^ emulated):
        yield f"src: only one of kernels/ptx and emulator/ptx has {name}"


def violations(root):
    yield from device_text_violations(root)
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".cpp", ".hpp", ".h", ".cuh"}:
            continue
        layer = path.relative_to(root / "src").parts[0]
        text = path.read_text()
        if layer not in ALLOWED:
            yield f"{path}: src/{layer} is no layer of cmake/check_layers.py"
            continue
        if CUDA.search(text):
            yield f"{path}: includes a CUDA header"
        for folder, rest in INCLUDE.findall(text):
            if layer == "kernels" or (layer, folder) == ("emulator", "ptx"):
                continue  # device_text_violations()
            if folder in ("rapt", "dlpack", layer):
                continue
            if folder == "kernels" and rest.startswith("abi/"):
                continue  # what host code and device text agree on
            if folder not in ALLOWED[layer]:
                yield f"{path}: src/{layer} must not include {folder}/{rest}"
    for path in sorted((root / "include").rglob("*.h*")):
        for folder, rest in INCLUDE.findall(path.read_text()):
            if folder not in ("rapt", "dlpack"):
                yield f"{path}: a public header includes {folder}/{rest}"


def main():
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "layers: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
