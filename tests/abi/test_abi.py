# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is installed: the header, the names of the library, the pkg-config file, and a program that uses them."""

import os
import pathlib
import re
import subprocess

import pytest

from harness import pages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20


def run(*command, **kwargs):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module", name="installed")
def fixture_installed(build, tmp_path_factory):
    """The folder that everything was installed under, with the prefix of the build."""
    folder = tmp_path_factory.mktemp("installed")
    run("meson", "install", "-C", build, "--no-rebuild", "--destdir", folder)
    return folder


def find(folder, name):
    found = [path for path in folder.rglob(name) if not path.is_symlink()]
    assert len(found) == 1, f"{name} was installed {len(found)} times"
    return found[0]


@pytest.fixture(name="pkg_config")
def fixture_pkg_config(installed):
    """pkg_config("--cflags") answers for what was installed."""
    folder = find(installed, "libhugezero.pc").parent

    def pkg_config(*arguments):
        env = {**os.environ, "PKG_CONFIG_PATH": str(folder), "PKG_CONFIG_SYSROOT_DIR": str(installed)}
        return run("pkg-config", *arguments, "libhugezero", env=env).split()

    return pkg_config


@pytest.fixture(name="example")
def fixture_example(pkg_config, tmp_path):
    program = tmp_path / "example"
    run("gcc", "-Wall", "-Wextra", "-Werror", ROOT / "tests" / "abi" / "example.c", *pkg_config("--cflags", "--libs"),
        "-o", program)
    return program


def environment(installed, socket_path):
    """Of a program that is to find the installed library and that socket."""
    lib = find(installed, "libhugezero.so.*").parent
    return {**os.environ, "HUGEZERO_SOCKET": str(socket_path), "LD_LIBRARY_PATH": str(lib)}


def names_in_map():
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "lib" / "libhugezero.sym").read_text(), flags=re.DOTALL)
    return re.findall(r"^\s+(hugezero_\w+);$", text, flags=re.MULTILINE)


def names_in_header(header):
    """As the compiler sees them: functions that are declared, not what remarks talk about."""
    text = re.sub(r"^#.*$", "", run("gcc", "-E", header), flags=re.MULTILINE)
    return set(re.findall(r"\b(hugezero_\w+)\(", text))


@pytest.mark.parametrize("compiler", ["gcc -std=c99", "gcc -std=c17", "g++ -std=c++11", "g++ -std=c++17"])
def test_the_header_compiles_alone(installed, tmp_path, compiler):
    command, standard = compiler.split()
    source = tmp_path / ("alone.cc" if command == "g++" else "alone.c")
    source.write_text("#include <hugezero.h>\nint main(void) { return hugezero_socket_path() == 0; }\n")
    run(command, standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-I", find(installed, "hugezero.h").parent,
        "-fsyntax-only", source)


def test_header_map_and_library_have_the_same_names(installed):
    in_map = names_in_map()
    assert len(in_map) >= 35 and in_map == sorted(in_map)
    assert names_in_header(find(installed, "hugezero.h")) == set(in_map)
    library = find(installed, "libhugezero.so.*")
    symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()]
    # nm appends the node; the node itself is a symbol too
    assert sorted(symbols) == sorted(["HUGEZERO_0.1", *(f"{name}@@HUGEZERO_0.1" for name in in_map)])


def test_the_library_has_its_own_version_and_few_needs(installed):
    library = find(installed, "libhugezero.so.*")
    dynamic = run("readelf", "--dynamic", "--wide", library)
    soname = re.search(r"SONAME.*\[(.*)\]", dynamic)[1]
    assert re.fullmatch(r"libhugezero\.so\.\d+", soname) and library.name.startswith(soname + ".")
    assert (library.parent / soname).is_symlink()
    # The loader has what thread-local variables need
    assert [name for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic) if not name.startswith("ld-linux")] == ["libc.so.6"]


def test_pkg_config_says_where_the_daemon_is(pkg_config):
    assert pkg_config("--variable=socket_path")[0].startswith("/")
    wire = (ROOT / "lib" / "common" / "wire.h").read_text()
    assert pkg_config("--variable=protocol_version") == re.findall(r"#define WIRE_VERSION (\d+)", wire)


def test_the_example_runs_on_memory_of_the_daemon(start_daemon, installed, example):
    pages.need_pages(8)
    daemon = start_daemon(pools=["2M:auto:16M"])
    output = run(example, env=environment(installed, daemon.socket_path))
    assert re.fullmatch(rf"{8 * MIB} bytes, the first is 0\n", output)


def test_the_example_says_what_is_wrong_without_a_daemon(installed, example, tmp_path):
    env = environment(installed, f"{tmp_path}/socket")
    done = subprocess.run([example], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 1
    assert f"{tmp_path}/socket" in done.stderr and "is hugezerod running" in done.stderr
