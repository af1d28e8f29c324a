# SPDX-License-Identifier: LGPL-2.1-or-later
"""The Debian packages: they build, lintian finds nothing, and they install, upgrade and go without harm."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest
from harness import packages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = {
    "hugezero": """
        /etc/hugezero/hugezerod.conf /etc/hugezero/reserve.conf
        /lib/systemd/system/hugezero-metrics.socket /lib/systemd/system/hugezero-reserve.service
        /lib/systemd/system/hugezerod.service /lib/systemd/system/hugezerod.socket
        /usr/lib/systemd/catalog/hugezero.catalog /usr/lib/sysusers.d/hugezero.conf /usr/lib/tmpfiles.d/hugezero.conf
        /usr/sbin/hugezerod /usr/sbin/hugezero-reserve
        /usr/share/man/man5/hugezerod.conf.5.gz /usr/share/man/man8/hugezero-reserve.8.gz /usr/share/man/man8/hugezerod.8.gz""",
    "libhugezero0": "LIB/libhugezero.so.0 LIB/libhugezero.so.0.1.0",
    "libhugezero-dev": """
        /usr/include/hugezero.h LIB/libhugezero.so LIB/pkgconfig/libhugezero.pc
        /usr/share/man/man3/libhugezero.3.gz /usr/share/man/man7/hugezero-protocol.7.gz""",
    "hugezero-tools": "/usr/bin/hugezeroctl /usr/share/man/man1/hugezeroctl.1.gz",
}

pytestmark = [
    pytest.mark.skipif(not shutil.which("dh"), reason="debhelper is not installed"),
    pytest.mark.timeout(600),  # the first one waits for the build
]


def run(*words, **kwargs):
    done = subprocess.run(list(map(str, words)), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder():
    """The packages, built once."""
    with tempfile.TemporaryDirectory(prefix="hugezero-test-") as made:
        yield packages.build(made)


def package(folder, name):
    (path,) = folder.glob(f"{name}_*.deb")
    return path


def field(path, name):
    return run("dpkg-deb", "--field", path, name).strip()


def files_of(path):
    """Without folders and what each package has about itself."""
    rows = [row.split(maxsplit=5) for row in run("dpkg-deb", "--contents", path).splitlines()]
    names = [row[5].split(" -> ")[0].removeprefix(".") for row in rows if not row[0].startswith("d")]
    return {name for name in names if not name.startswith("/usr/share/doc/")}


def test_lintian_finds_no_error_and_nothing_to_warn_of(folder):
    if not shutil.which("lintian"):
        pytest.skip("lintian is not installed")
    (changes,) = folder.glob("*.changes")
    assert run("lintian", "--allow-root", "--fail-on", "error,warning", changes).strip() == ""


@pytest.mark.parametrize("name", FILES)
def test_a_package_has_these_files(folder, name):
    triplet = run("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
    found = {path for path in files_of(package(folder, name)) if not path.startswith("/etc/hugezero/hugezerod.conf.d/")}
    assert found == set(FILES[name].replace("LIB/", f"/usr/lib/{triplet}/").split())


def test_the_version_is_that_of_the_project(folder):
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
    for name in FILES:
        assert field(package(folder, name), "Version") == version
    news = re.search(r"^## ([\d.]+)", (ROOT / "NEWS.md").read_text(), re.MULTILINE)[1]
    assert news == version


def test_each_package_needs_what_its_programs_are_linked_with(folder):
    assert "libevent-extra" in field(package(folder, "hugezero"), "Depends")
    assert "libhugezero0 (>= 0.1" in field(package(folder, "hugezero-tools"), "Depends")
    assert "libhugezero0 (= " in field(package(folder, "libhugezero-dev"), "Depends")


# What the maintainer scripts do, with stand-ins for all that they call

STAND_INS = "deb-systemd-invoke", "deb-systemd-helper", "systemctl", "systemd-sysusers", "systemd-tmpfiles"


@pytest.fixture
def script(folder, tmp_path):
    """script("postinst", "configure", "0.0.9") -> the commands about units that it gave"""
    if os.geteuid() != 0:
        pytest.skip("only root can make it seem that systemd runs")
    run("dpkg-deb", "--control", package(folder, "hugezero"), tmp_path / "control")
    (tmp_path / "bin").mkdir()
    for name in STAND_INS:
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n')
        (tmp_path / "bin" / name).chmod(0o755)

    def call(name, *words):
        (tmp_path / "calls").write_text("")
        if not (tmp_path / "control" / name).exists():
            return []
        seem = 'mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec "$@"'
        env = dict(os.environ, PATH=f"{tmp_path}/bin:{os.environ['PATH']}", DPKG_MAINTSCRIPT_PACKAGE="hugezero")
        run("unshare", "--mount", "sh", "-c", seem, "sh", tmp_path / "control" / name, *words, env=env)
        calls = (tmp_path / "calls").read_text().splitlines()
        return [line for line in calls if line.startswith(("deb-systemd-invoke", "systemctl")) and "daemon-reload" not in line]

    return call


def test_an_upgrade_restarts_the_service_and_stops_nothing(script):
    steps = [("prerm", "upgrade", "0.2"), ("preinst", "upgrade", "0.1"), ("postrm", "upgrade", "0.2"), ("postinst", "configure", "0.1")]
    assert [call for step in steps for call in script(*step)] == ["deb-systemd-invoke try-restart hugezerod.service"]


def test_an_installation_starts_nothing(script):
    assert script("preinst", "install") == script("postinst", "configure") == []


def test_a_removal_stops_sockets_and_service(script):
    assert script("prerm", "remove") == ["deb-systemd-invoke stop hugezero-metrics.socket hugezerod.socket hugezerod.service hugezero-reserve.service"]


def test_an_upgrade_that_fails_stops_nothing_either(script):
    for step in ("postinst", "abort-upgrade", "0.2"), ("prerm", "failed-upgrade", "0.1"), ("postrm", "abort-upgrade", "0.2"), ("preinst", "abort-upgrade", "0.2"):
        assert not any("stop" in call.split() for call in script(*step))


# Installation into a root of its own


@pytest.fixture
def root(folder, tmp_path):
    """(path, dpkg): dpkg(option, file or name...) runs there, with the maintainer scripts of the packages."""
    if os.geteuid() != 0:
        pytest.skip("only root can install packages")
    for name in "var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "usr":
        (tmp_path / name).mkdir(parents=True)
    for name in "status", "available":
        (tmp_path / "var/lib/dpkg" / name).touch()

    def dpkg(*words):
        return run("dpkg", f"--root={tmp_path}", "--force-depends,script-chrootless", f"--log={tmp_path}/log", *words)

    return tmp_path, dpkg


def test_what_is_installed_works_and_goes(folder, root):
    path, dpkg = root
    dpkg("--install", *[package(folder, name) for name in FILES])
    triplet = run("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
    library = {"LD_LIBRARY_PATH": f"{path}/usr/lib/{triplet}"}
    version = field(package(folder, "hugezero"), "Version")
    assert run(path / "usr/bin/hugezeroctl", "--version", env=library).strip() == f"hugezeroctl {version}"
    assert run(path / "usr/sbin/hugezerod", "--version").strip() == f"hugezerod {version}"
    assert re.search(r"^hugezero:", (path / "etc/passwd").read_text(), re.MULTILINE)
    assert (path / "run/hugezero").stat().st_mode & 0o777 == 0o755
    assert not list((path / "etc").rglob("*.wants")), "an installation enables nothing"

    # A program is built with what the development package has
    env = dict(os.environ, PKG_CONFIG_LIBDIR=f"{path}/usr/lib/{triplet}/pkgconfig", PKG_CONFIG_SYSROOT_DIR=str(path))
    flags = run("pkg-config", "--cflags", "--libs", "libhugezero", env=env).split()
    run("gcc", ROOT / "tests" / "abi" / "example.c", "-o", path / "example", f"-I{path}/usr/include", *flags)
    assert "libhugezero.so.0" in run("ldd", path / "example", env=library)

    # An administrator's change outlives an upgrade, and all is gone after a purge
    (path / "etc/hugezero/hugezerod.conf").write_text("[Pool vm]\nTarget=1G\n")
    run("dpkg-deb", "--raw-extract", package(folder, "hugezero"), path / "next")
    control = path / "next/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {version}\n", f"Version: {version}.1\n"))
    run("dpkg-deb", "--build", path / "next", path / "next.deb")
    dpkg("--install", path / "next.deb")
    assert "Target=1G" in (path / "etc/hugezero/hugezerod.conf").read_text()
    dpkg("--purge", *FILES)
    assert not (path / "etc/hugezero").exists() and not (path / "usr/sbin/hugezerod").exists()
