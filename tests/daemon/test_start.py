# SPDX-License-Identifier: LGPL-2.1-or-later
"""Options, configuration, start and end of the daemon."""

import os
import pathlib
import signal
import socket
import subprocess

import pytest
from harness import wait_until
from harness.daemon import DaemonFailed, become, sanitizer_environment
from harness.manager import ServiceManager
from harness.pages import MIB, PAGE_1G, count, need_pages, sysfs
from hugezero_client import Client, Item, Refused


def run(build, *args, program="daemon/hugezerod"):
    return subprocess.run(
        [build / program, *args],
        env=dict(os.environ, **sanitizer_environment(None)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def check_config(build, tmp_path, text, *args):
    path = tmp_path / "hugezerod.conf"
    path.write_text(text)
    return run(build, "--config", str(path), "--check-config", *args)


def test_help_goes_to_stdout_and_fits_80_columns(build):
    answer = run(build, "--help")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert max(map(len, answer.stdout.splitlines())) <= 80
    for option in "--config", "--socket", "--pool", "--check-config", "--help", "--version":
        assert option in answer.stdout


def test_the_help_and_the_page_name_the_short_option_too(build):
    assert "--help, -h " in run(build, "--help").stdout
    assert run(build, "-h").stdout == run(build, "--help").stdout
    page = (pathlib.Path(__file__).resolve().parents[2] / "daemon" / "hugezerod.8.scd").read_text()
    assert "*--help*, *-h*" in page and "[*--config* _FILE_]..." not in page


def test_version_names_the_program_and_its_version(build):
    answer = run(build, "--version")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.split()[0] == "hugezerod"


@pytest.mark.parametrize(
    "args, complaint",
    [
        (["--no-such-option"], "option --no-such-option: there is no such option"),
        (["-x"], "option -x: there is no such option"),
        (["--check-config=yes"], "option --check-config=yes: it takes no value"),
        (["--config"], "option --config: it needs a value"),
        (["--config="], "option --config=: its value is empty"),
        (["--socket="], "option --socket=: its value is empty"),
        (["--pool", ""], "option --pool: its value is empty"),
        (["stray"], "argument 'stray': only options are expected"),
    ],
)
@pytest.mark.parametrize("program", ["daemon/hugezerod", "systemd/hugezero-reserve"])
def test_a_wrong_command_line_is_refused_on_stderr(build, program, args, complaint):
    name = os.path.basename(program)
    if name == "hugezero-reserve" and args[0].startswith(("--socket", "--pool")):
        complaint = complaint.split(": ")[0] + ": there is no such option"
    answer = run(build, *args, program=program)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == f"{name}: {complaint}\nTry: {name} --help\n"


def test_the_sample_file_is_a_good_configuration(build):
    sample = pathlib.Path(__file__).resolve().parents[2] / "config" / "hugezerod.conf"
    answer = run(build, "--config", str(sample), "--check-config")
    assert answer.returncode == 0, answer.stderr


def test_a_good_configuration_passes_the_check_and_starts_nothing(build, tmp_path):
    used = count("nr") - count("free")
    answer = check_config(build, tmp_path, f"[Daemon]\nSocket={tmp_path}/socket\n[Pool vm]\nPageSize=2M\nTarget=4M\n")
    assert answer.returncode == 0, answer.stderr
    assert not (tmp_path / "socket").exists()
    assert count("nr") - count("free") <= used + 64  # others may take some at the same time


WRONG = {
    "unknown key": ("[Daemon]\nSoket=/run/x\n", 2, "Soket"),
    "unknown section": ("\n[Demon]\nSocket=/run/x\n", None, "Demon"),
    "key without section": ("Socket=/run/x\n", 1, "Socket"),
    "key without value": ("[Daemon]\n\nSocket\n", 3, "Socket"),
    "duplicate pool": ("[Pool a]\nTarget=2M\n[Pool a]\nTarget=2M\n", 3, "a"),
    "extent that is no multiple": ("[Pool a]\nPageSize=2M\nExtentSize=3M\nTarget=4M\n", None, "ExtentSize"),
    "page size that the kernel lacks": ("[Pool a]\nPageSize=3M\nTarget=6M\n", 2, "PageSize"),
    "node that does not exist": ("[Pool a]\nTarget=2M\nNodes=63\n", 3, "63"),
    "relative socket path": ("[Daemon]\nSocket=run/socket\n", 2, "Socket"),
    "socket path that is a folder's": ("[Daemon]\nSocket=/tmp/\n", 2, "Socket"),
    "socket path that is too long": (f"[Daemon]\nSocket=/{'x' * 107}\n", 2, "Socket"),
    "no number": ("[Pool a]\nTarget=lots\n", 2, "Target"),
    "bad duration": ("[Daemon]\nReleaseGrace=soon\n", 2, "ReleaseGrace"),
    "text after a section": ("[Daemon] yes\nLogLevel=info\n", 1, None),
    "indented key": ("[Daemon]\nLogLevel=info\n  Recycle=never\n", 3, None),
    "long line": (f"[Daemon]\n# {'x' * 300}\nSocket=/{'x' * 300}\n", None, None),
    "unknown group": ("[Daemon]\nSocketGroup=no-such-group\n", 2, "no-such-group"),
    "bad quota": ("[Quota default]\nMaxBytes=-1\n", 2, "MaxBytes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_configuration_is_refused_with_file_line_and_key(build, tmp_path, case):
    text, line, word = WRONG[case]
    answer = check_config(build, tmp_path, text)
    assert answer.returncode == 1, (answer.returncode, answer.stderr)
    assert f"{tmp_path}/hugezerod.conf" in answer.stderr
    if line is not None:
        assert f"hugezerod.conf:{line}:" in answer.stderr
    if word is not None:
        assert word in answer.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a mount")
@pytest.mark.parametrize("hidden", ["/proc", "/sys"])
def test_a_missing_proc_or_sys_is_what_the_programs_complain_of(build, tmp_path, hidden):
    """Over an empty folder: what looks like a kernel without hugepages or users is none."""

    def say(*command):
        script = f'mount -t tmpfs none {hidden} && exec "$@"'
        env = dict(os.environ, LD_LIBRARY_PATH=str(build / "lib"), HUGEZERO_SOCKET=str(tmp_path / "socket"), **sanitizer_environment(65534))
        return subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", *command], env=env, capture_output=True, text=True, timeout=30, check=False)

    config = tmp_path / "hugezerod.conf"
    config.write_text("")
    for option in [], ["--check-config"]:
        answer = say(build / "daemon" / "hugezerod", "--config", config, "--pool", "2M:2M:2M", "--socket", tmp_path / "socket", *option)
        assert answer.returncode == 1 and f"{hidden} is not mounted" in answer.stderr, answer
        assert "user namespace" not in answer.stderr and "no hugepages" not in answer.stderr
    answer = say(build / "tools" / "hugezeroctl", "doctor")
    assert answer.returncode == 1 and f"PROBLEM  mounts: {hidden} is not mounted" in answer.stdout, answer
    assert "this kernel" not in answer.stdout
    answer = say(build / "tools" / "hugezeroctl", "bench", "clear", "--bytes", "2M", "--runs", "1", "--no-harm")
    assert answer.returncode == 1 and f"{hidden} is not mounted" in answer.stderr, answer
    if hidden == "/sys":
        answer = say(build / "systemd" / "hugezero-reserve", "--config", config)
        assert answer.returncode == 1 and "/sys is not mounted" in answer.stderr, answer
    else:
        answer = say(build / "tools" / "hugezeroctl", "grants", "--holders")
        assert answer.returncode == 1 and "/proc is not mounted" in answer.stderr, answer


@pytest.mark.parametrize("limit", [20, 60])
def test_a_limit_of_files_too_small_to_serve_stops_the_start(start_daemon, limit):
    with pytest.raises(DaemonFailed) as failure:
        start_daemon(pools=["2M:2M:4M"], wrapper=["prlimit", f"--nofile={limit}:{limit}", "--"])
    assert failure.value.code == 1
    for text in f"may open {limit} files", "LimitNOFILE=", "ulimit -n":
        assert text in failure.value.stderr


def test_a_configuration_that_is_named_must_exist(build, tmp_path):
    answer = run(build, "--config", str(tmp_path / "none.conf"), "--check-config")
    assert answer.returncode == 1
    assert f"{tmp_path}/none.conf" in answer.stderr


@pytest.mark.parametrize("spec", ["2M", "2M:auto", "=2M", "=2M:auto:4M", "a=2M::4M", "2M:3M:4M", "2M:auto:4M@99", "2M:auto:lots", "5M:auto:10M"])
def test_a_wrong_pool_option_is_refused(build, spec):
    answer = run(build, "--pool", spec, "--check-config")
    assert answer.returncode == 1
    assert f"--pool {spec}: " in answer.stderr
    form = {"2M:3M:4M": "give 2 MiB or 4 MiB", "2M:auto:4M@99": "Nodes=", "2M:auto:lots": "Target=", "5M:auto:10M": "PageSize="}
    assert form.get(spec, "give [NAME=]PAGESIZE:EXTENTSIZE:TARGET[@NODES], like 2M:auto:4G") in answer.stderr


def test_a_wrong_configuration_does_not_start(start_daemon):
    with pytest.raises(DaemonFailed) as failure:
        start_daemon(config="Recycle=perhaps\n")
    assert failure.value.code == 1
    assert "hugezerod.conf:3:" in failure.value.stderr
    assert "Recycle" in failure.value.stderr


def test_drop_ins_come_after_the_file(build, tmp_path):
    (tmp_path / "hugezerod.conf.d").mkdir()
    (tmp_path / "hugezerod.conf.d" / "50-bad.conf").write_text("[Daemon]\n\nRecycle=perhaps\n")
    answer = check_config(build, tmp_path, "[Daemon]\nRecycle=never\n")
    assert answer.returncode == 1
    assert "50-bad.conf:3:" in answer.stderr


def test_pools_of_the_command_line_replace_those_of_the_file(start_daemon):
    need_pages(4)
    daemon = start_daemon(config="[Pool file]\nTarget=2M\n", pools=["2M:auto:4M", "2M:2M:4M"])
    rows = daemon.pools()
    assert sorted((row["extent_bytes"], row["target_bytes"]) for row in rows) == [(0, 4 * MIB), (2 * MIB, 4 * MIB)]
    assert "file" not in {row["name"] for row in rows}


@pytest.mark.large
def test_no_configuration_at_all_gives_half_of_the_free_pages(start_daemon):
    need_pages(64)
    daemon = start_daemon(config="")
    row = daemon.pool()
    free_then = count("free") + (row["ready_bytes"] + row["filling_bytes"]) // row["page_size_bytes"]
    # The numbers are read at different moments
    assert abs(row["target_bytes"] // row["page_size_bytes"] - free_then // 2) <= free_then // 8
    assert row["extent_bytes"] == 0
    assert "half" in daemon.stderr()


def test_the_socket_is_gone_after_the_end(start_daemon):
    daemon = start_daemon(pools=["2M:auto:0"])
    path = pathlib.Path(daemon.socket_path)
    assert path.is_socket()
    daemon.process.send_signal(signal.SIGTERM)
    wait_until(lambda: daemon.process.poll() is not None, "the daemon has ended")
    assert not path.exists()


def test_the_last_folder_of_the_path_is_made_and_removed(start_daemon, tmp_path):
    folder = tmp_path / "folder"
    for is_used in False, True:
        daemon = start_daemon(pools=["2M:auto:0"], args=["--socket", str(folder / "socket")])
        assert (folder / "socket").is_socket()
        if is_used:
            (folder / "file").touch()
        daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: daemon.process.poll() is not None, "the daemon has ended")
        assert folder.exists() == is_used
    assert list(folder.iterdir()) == [folder / "file"]


@pytest.mark.parametrize("name", ["writable for others", "no folder", "two missing folders", "a folder instead"])
def test_a_socket_that_cannot_be_made_is_told_in_one_line(build, tmp_path, name):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").touch()
    path, reason = {
        "writable for others": ("open/socket", "has mode 0777: others may write to it and could replace the socket"),
        "no folder": ("file/socket", "Not a directory"),
        "two missing folders": ("not/there/socket", "Only the last folder"),
        "a folder instead": ("open", "no socket"),
    }[name]
    answer = run(build, "--socket", str(tmp_path / path), "--pool", "2M:auto:0")
    assert answer.returncode == 1
    (line,) = [line for line in answer.stderr.splitlines() if str(tmp_path) in line or "failed" in line]
    assert reason in line and "failed" not in line
    assert {path.name for path in tmp_path.iterdir()} == {"open", "file"}


def test_a_second_daemon_on_the_same_socket_is_refused(build, start_daemon):
    daemon = start_daemon(pools=["2M:auto:0"])
    answer = run(build, "--socket", daemon.socket_path, "--pool", "2M:auto:0")
    assert answer.returncode == 1
    assert daemon.socket_path in answer.stderr
    daemon.status()


def test_a_stale_socket_is_replaced(start_daemon):
    daemon = start_daemon(pools=["2M:auto:0"])
    daemon.kill()
    assert pathlib.Path(daemon.socket_path).is_socket()
    again = start_daemon(pools=["2M:auto:0"], args=["--socket", daemon.socket_path])
    again.socket_path = daemon.socket_path
    again.status()
    again.stop()
    daemon.clean()


def test_a_file_in_place_of_the_socket_is_left_alone(build, tmp_path):
    (tmp_path / "socket").write_text("precious")
    answer = run(build, "--socket", str(tmp_path / "socket"), "--pool", "2M:auto:0")
    assert answer.returncode == 1
    assert str(tmp_path / "socket") in answer.stderr
    assert (tmp_path / "socket").read_text() == "precious"


def test_the_socket_has_the_mode_and_group_of_the_configuration(start_daemon):
    daemon = start_daemon(pools=["2M:auto:0"], config="SocketMode=0640\nSocketGroup=daemon\n")
    status = os.stat(daemon.socket_path)
    assert (status.st_mode & 0o777, status.st_gid) == (0o640, 1)


def test_the_socket_is_closed_to_others_by_default(build, tmp_path, start_daemon):
    daemon = start_daemon(pools=["2M:auto:0"], config="SocketMode=0660\n")
    assert os.stat(daemon.socket_path).st_mode & 0o777 == 0o660
    sample = (pathlib.Path(__file__).resolve().parents[2] / "config" / "hugezerod.conf").read_text()
    assert "SocketMode=0660" in sample


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_it_is_filling(start_daemon, number):
    need_pages(128)
    daemon = start_daemon(pools=["2M:auto:256M"])
    daemon.process.send_signal(number)
    assert daemon.process.wait(20) == 0


def test_a_daemon_without_privileges_serves(start_daemon):
    need_pages(4)
    daemon = start_daemon(pools=["2M:auto:8M"], uid=65534)
    daemon.wait_full()


def test_it_is_ready_before_the_pool_is_full(start_daemon):
    """Also when the pool can never be full: what is missing is a shortfall, said once."""
    if not sysfs(PAGE_1G).is_dir():
        pytest.skip("cannot: this kernel has no pages of 1 GiB")
    n_wanted = count("nr", PAGE_1G) + 2
    daemon = start_daemon(pools=[f"1G:auto:{n_wanted}G"])
    row = daemon.wait_pool(lambda row: row["shortfall_bytes"] >= 2 * PAGE_1G, "the shortfall is known")
    assert row["target_bytes"] == n_wanted * PAGE_1G
    assert daemon.stderr().count("short") == 1


def test_stdin_and_stdout_are_not_needed(start_daemon):
    daemon = start_daemon(pools=["2M:auto:0"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.connect(daemon.socket_path)


# A socket that the service manager passes


@pytest.fixture
def activate(programs):
    """activate(gid, config) starts a daemon that is passed a socket whose file belongs to the group."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to any group")
    managers = []

    def start(gid, config="", pool="2M:2M:4M", path=None, mode=None):
        need_pages(2)
        manager = ServiceManager(programs, [pool], config)
        managers.append(manager)
        path = str(manager.folder / path) if path else manager.socket_path
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen()
            os.chown(path, 0, gid)
            if mode:
                os.chmod(path, mode)
            manager.store.append(("hugezerod.socket", os.dup(listener.fileno())))
        manager.start()
        manager.socket_path = path
        manager.wait_full()
        return manager

    yield start
    for manager in managers:
        manager.stop()
        manager.close()


def acquire_reopenable(manager):
    with Client(manager.socket_path) as client:
        (extent,) = client.acquire([Item(bytes=2 * MIB, reopenable=True)]).extents
        status = os.fstat(extent.fd)
        os.close(extent.fd)
        return status.st_gid, status.st_mode & 0o777


def test_the_group_of_a_passed_socket_is_taken_over(activate):
    manager = activate(61236)
    assert acquire_reopenable(manager) == (61236, 0o660)
    with Client(manager.socket_path) as client:
        client.reload()
    assert "started again" not in manager.stderr()
    assert acquire_reopenable(manager) == (61236, 0o660)


def test_a_configured_group_comes_before_that_of_a_passed_socket(activate):
    assert acquire_reopenable(activate(61236, config="SocketGroup=61237\n"))[0] == 61237


def test_a_passed_socket_is_named_by_where_it_listens(activate):
    manager = activate(0, path="elsewhere")
    assert f"serves on {manager.folder}/elsewhere, a socket that was passed to it\n" in manager.stderr()
    assert str(manager.folder / "socket") not in manager.stderr()


def test_path_and_mode_of_a_passed_socket_are_not_those_of_the_configuration(activate):
    """Whatever these say, no restart brings them into effect."""
    manager = activate(0, path="elsewhere")
    with open(manager.folder / "hugezerod.conf", "w") as config:
        config.write("[Daemon]\nSocket=/nowhere/socket\nSocketMode=0600\nBatch=4M\n")
    with Client(manager.socket_path) as client:
        assert client.reload() == "Batch="


# The manager writes SocketMode=0666, and has --socket, which is as Socket=
@pytest.mark.parametrize("key, said, passed", [
    ("SocketGroup=", "SocketGroup=61237", {"config": "SocketGroup=61237\n", "mode": 0o666}),
    ("SocketMode=", "SocketMode=", {"mode": 0o660}),
    ("Socket=", "ListenSequentialPacket=", {"path": "elsewhere", "mode": 0o666}),
])  # fmt: skip
def test_a_passed_socket_that_is_not_as_configured_is_said_once(activate, key, said, passed):
    manager = activate(61236, **passed)
    (line,) = (line for line in manager.stderr().splitlines() if "was passed to the daemon" in line)
    assert f"({key})" in line and f"with {said} below [Socket]" in line and "systemctl edit hugezerod.socket" in line
    with Client(manager.socket_path) as client:
        client.reload()
    assert manager.stderr().count("was passed to the daemon") == 2


def test_a_passed_socket_that_is_as_configured_is_not_spoken_of(activate):
    manager = activate(61236, config="SocketGroup=61236\n", mode=0o666)
    assert "was passed to the daemon" not in manager.stderr()


STRANGER = 65534


def test_a_group_that_memory_cannot_be_given_to_stops_the_start(programs, start_daemon, public_path):
    with pytest.raises(DaemonFailed) as failure:
        start_daemon(pools=["2M:auto:0"], config="SocketGroup=61237\n", uid=STRANGER)
    assert failure.value.code == 1
    assert "SocketGroup=61237" in failure.value.stderr and "usermod -aG 61237" in failure.value.stderr
    (public_path / "hugezerod.conf").write_text("[Daemon]\nSocketGroup=61237\n")
    for uid, expected in (STRANGER, 1), (0, 0):
        command = [*become(uid), programs / "daemon" / "hugezerod", "--config", public_path / "hugezerod.conf", "--check-config"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ, **sanitizer_environment(uid)))
        assert answer.returncode == expected, answer.stderr
        assert ("usermod -aG 61237" in answer.stderr) == (expected == 1), answer.stderr


def test_a_reload_does_not_take_over_a_group_that_would_stop_the_start(start_daemon):
    daemon = start_daemon(pools=["2M:auto:0"], uid=STRANGER)
    config = daemon.folder / "hugezerod.conf"
    config.write_text(config.read_text() + "SocketGroup=61237\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "nothing was changed: [Daemon] SocketGroup=61237" in daemon.stderr(), "it is refused")


def test_the_group_of_root_is_no_group(activate):
    with pytest.raises(Refused, match="SocketGroup="):
        acquire_reopenable(activate(0))


def test_a_wrong_environment_of_a_service_manager_is_said(start_daemon):
    with pytest.raises(DaemonFailed) as failure:
        start_daemon(env={"LISTEN_PID": "x", "LISTEN_FDS": "1"})
    assert failure.value.code == 1
    assert "LISTEN_PID=" in failure.value.stderr
