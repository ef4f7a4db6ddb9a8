#!/usr/bin/env python3
"""Installs Rapt as a packager does and uses it as a user does.

usage: install_test.py CASE --source DIR --build DIR --work DIR --cc CC --cxx CXX --build-type T
                       --werror ON|OFF

Cases `shared` and `static` install into WORK/<case> and move the result, so that everything after
them also shows that the tree is relocatable; the other cases use what they left.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import string
import subprocess
import sys


def run(*command, expect_failure=False, **options):
    """Runs a command, with its output; its text is the result."""
    print("+", *command, flush=True)
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    print(done.stdout, flush=True)
    if (done.returncode != 0) != expect_failure:
        sys.exit(f"exit code {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def configure(arg, source, build, *settings):
    """The command; with the tree's compiler cache, which has most of the library already."""
    launcher = (
        "cmake;-E;env;CCACHE_NOHASHDIR=1;" f"CCACHE_BASEDIR={arg.source};{shutil.which('ccache')}"
    )
    shutil.rmtree(build, ignore_errors=True)
    return [
        "cmake",
        "-S",
        source,
        "-B",
        build,
        "-G",
        "Ninja",
        f"-DCMAKE_C_COMPILER={arg.cc}",
        f"-DCMAKE_CXX_COMPILER={arg.cxx}",
        f"-DCMAKE_BUILD_TYPE={arg.build_type}",
        *([f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"] if shutil.which("ccache") else []),
        "-DCMAKE_UNITY_BUILD=ON",
        "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12",
        *settings,
    ]


def beside(arg, name):
    """A build folder as deep as the tree's own, so that relative paths, which the compiler cache
    looks at, are the same."""
    return arg.build.parent / f"{arg.build.name}-install-test-{name}"


def install(arg, build, kind):
    """Installs into WORK/KIND-first and moves that to WORK/KIND."""
    first, moved = arg.work / f"{kind}-first", arg.work / kind
    for folder in (first, moved):
        shutil.rmtree(folder, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", first)
    first.rename(moved)
    for path in (
        "include/rapt/rapt.hpp",
        "include/rapt/rapt.h",
        "include/dlpack/dlpack.h",
        "share/doc/rapt/LICENSE",
    ):
        assert (moved / path).is_file(), f"{path} is not installed"
    for text in moved.rglob("*.cmake"):
        assert str(arg.source) not in text.read_text(), f"{text} names the source tree"


def exported(library, types=string.ascii_letters):
    """Names of the dynamic symbols of some of nm's types that a library defines, demangled."""
    lines = run("nm", "-D", "--defined-only", "-C", library).splitlines()
    symbols = [line.split(maxsplit=2) for line in lines]
    return [name for _, its_type, name in symbols if its_type in types]


def consume(arg, how, *settings):
    """Builds and runs the consumer project; gives its build folder."""
    build = beside(arg, f"consumer-{how}")
    run(
        *configure(
            arg,
            arg.source / "tests/install/consumer",
            build,
            f"-DRAPT_SOURCE={arg.source}",
            *settings,
        )
    )
    run("cmake", "--build", build)
    for program in ("consumer_cpp", "consumer_c", "consumer_errors"):
        run(build / program)
    return build


def shared(arg):
    install(arg, arg.build, "shared")
    library = arg.work / "shared/lib/librapt.so"
    assert "Library soname: [librapt.so.0]" in run("readelf", "-d", library)
    assert "h100" in run(arg.work / "shared/bin/rapt", "devices")
    # The folder of the core pack is there with the pack, or not at all.
    packs, pack = arg.work / "shared/lib/rapt", arg.build / "lib/rapt/core.rpk"
    assert packs.exists() == pack.exists(), f"{packs} and {pack}"
    if pack.exists():
        assert (packs / "core.rpk").read_bytes() == pack.read_bytes()


def symbols(arg):
    names = exported(arg.work / "shared/lib/librapt.so")
    ours = re.compile(r"rapt_\w+$|((typeinfo|typeinfo name|vtable) for )?rapt::")
    foreign = [name for name in names if not ours.match(name)]
    assert not foreign, f"exported, but not Rapt's interface: {foreign}"
    declared = set(
        re.findall(
            r"\b(rapt_\w+)\(",
            re.sub(r"/\*.*?\*/", "", (arg.source / "include/rapt/rapt.h").read_text(), flags=re.S),
        )
    )
    declared -= {
        name for name in declared if name in ("rapt_task", "rapt_parallel_for", "rapt_log")
    }
    missing = declared - set(names)
    assert len(declared) > 40 and not missing, f"declared in rapt.h, but not exported: {missing}"
    unlisted = {name for name in names if name.startswith("rapt_")} - declared
    assert not unlisted, f"exported, but not declared in rapt.h: {unlisted}"


def headers(arg):
    """Each public header, with the installed include folder alone; C ones in both languages."""
    include = arg.work / "shared/include"
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{include}"]
    c, cxx = [arg.cc, "-std=c99", "-x", "c"], [arg.cxx, "-std=c++20", "-x", "c++"]
    paths = sorted((include / "rapt").iterdir())
    assert len(paths) > 10
    alone = [
        (language, path.name)
        for path in paths
        for language in ([c, cxx] if path.suffix == ".h" else [cxx])
    ]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(
            pool.map(
                lambda one: run(
                    *one[0], *strict, "-", input=f'#include "rapt/{one[1]}"\nint not_empty;\n'
                ),
                alone,
            )
        )


def find_package(arg):
    consume(
        arg,
        "find_package",
        "-DRAPT_FROM=find_package",
        f"-DCMAKE_PREFIX_PATH={arg.work / 'shared'}",
    )
    later = arg.work / "later-version"
    shutil.rmtree(later, ignore_errors=True)
    later.mkdir()
    (later / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(later LANGUAGES CXX)\n"
        "find_package(rapt 0.2 CONFIG REQUIRED)\n"
    )
    said = run(
        *configure(arg, later, later / "build", f"-DCMAKE_PREFIX_PATH={arg.work / 'shared'}"),
        expect_failure=True,
    )
    assert "requested version" in said


def pkg_config(arg, kind="shared"):
    prefix = arg.work / kind
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    assert ("-DRAPT_STATIC" in run("pkg-config", "--cflags", "rapt", env=environment)) == (
        kind == "static"
    )
    folder = arg.work / f"pkg_config-{kind}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for source in ("attention_cpp/main.cpp", "attention_c/main.c"):
        shutil.copy(arg.source / "examples" / source, folder)
    run(
        "bash", "-eu", arg.source / "tests/install/pkg_config.sh", kind, cwd=folder, env=environment
    )
    for program in ("serve_cpp", "serve_c"):
        run(folder / program, env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")})


def static(arg):
    build = beside(arg, "static")
    run(
        *configure(
            arg,
            arg.source,
            build,
            "-DBUILD_SHARED_LIBS=OFF",
            "-DRAPT_BUILD_TESTS=OFF",
            "-DRAPT_BUILD_TOOLS=OFF",
            f"-DRAPT_WERROR={arg.werror}",
        )
    )
    run("cmake", "--build", build)
    install(arg, build, "static")
    consumer = consume(
        arg, "static", "-DRAPT_FROM=find_package", f"-DCMAKE_PREFIX_PATH={arg.work / 'static'}"
    )
    assert "RAPT_STATIC" in (consumer / "build.ninja").read_text()
    # Weak ones are inline functions of the headers, which the user's own compiler made.
    assert exported(consumer / "libplugin.so", "TDBR") == [
        "plugin_threads"
    ], "a user's library exports Rapt"
    pkg_config(arg, "static")


def add_subdirectory(arg):
    consume(arg, "add_subdirectory", "-DRAPT_FROM=add_subdirectory", f"-DRAPT_WERROR={arg.werror}")


def fetch_content(arg):
    consume(arg, "fetch_content", "-DRAPT_FROM=fetch_content", f"-DRAPT_WERROR={arg.werror}")


CASES = {
    case.__name__: case
    for case in (
        shared,
        symbols,
        headers,
        find_package,
        pkg_config,
        static,
        add_subdirectory,
        fetch_content,
    )
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=CASES)
    for folder in ("source", "build", "work"):
        parser.add_argument(f"--{folder}", type=pathlib.Path, required=True)
    for setting in ("cc", "cxx", "build-type", "werror"):
        parser.add_argument(f"--{setting}", required=True)
    arg = parser.parse_args()
    arg.work.mkdir(parents=True, exist_ok=True)
    CASES[arg.case](arg)


if __name__ == "__main__":
    main()
