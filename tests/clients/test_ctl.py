# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezeroctl against the real daemon: the contract of its exit codes and streams, and what each verb promises."""

import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest
from harness import holder, wait_until
from harness.daemon import sanitizer_environment
from harness.pages import MIB, PAGE_2M, need_pages
from hugezero_client import Client, Item

NOBODY = 65534
GROUP = 61234  # nobody's group: only the client under test is a member
QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"
VERBS = "status", "grants", "run", "hold", "resize", "drain", "reload", "metrics", "bench", "doctor"
NEEDS_DAEMON = {
    "status": ["status"],
    "grants": ["grants"],
    "run": ["run", "--grant", "name=a,bytes=2M", "--", "true"],
    "hold": ["hold", "bytes=2M"],
    "resize": ["resize", "vm", "2M"],
    "drain": ["drain"],
    "reload": ["reload"],
    "metrics": ["metrics"],
    "bench": ["bench", "--bytes", "2M"],
}
# What a program started by run does with its memory: says its size, whether all of it is zero, and writes to it
PROGRAM = """
import json, mmap, os, sys
answers = []
for word in sys.argv[1:]:
    for one in word.split(","):
        fd = os.open(one, os.O_RDWR) if one.startswith("/") else int(one)
        memory = mmap.mmap(fd, 0 if one.startswith("/") else os.fstat(fd).st_size)
        answers.append([len(memory), memory.count(b"\\0") if hasattr(memory, "count") else memory[:].count(0)])
        memory[:5] = b"hello"
print(json.dumps(answers))
"""


def ctl(build, *args, socket_path="/nowhere/socket", **kwargs):
    """Runs hugezeroctl where no daemon of the harness is involved."""
    env = dict(os.environ, HUGEZERO_SOCKET=str(socket_path), **sanitizer_environment(None))
    return subprocess.run(
        [str(build / "tools" / "hugezeroctl"), *args], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False, **kwargs
    )


def assert_complains(answer, code, *words):
    """Nothing on stdout, one complaint on stderr with all the words in it."""
    assert answer.returncode == code, answer
    assert answer.stdout == "", answer
    assert answer.stderr.startswith("hugezeroctl: "), answer
    for word in words:
        assert word in answer.stderr, answer


def start_full(start_daemon, *pools, config=QUICK, **kwargs):
    need_pages(128)
    daemon = start_daemon(pools=pools or ["2M:auto:64M"], config=config, **kwargs)
    daemon.wait_full()
    return daemon


def heed_signals():
    """What the shell that started the tests ignores (in the background it does) is not ignored by a program that is to end by it."""
    for number in signal.SIGINT, signal.SIGHUP, signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)


def start(daemon, *args, **kwargs):
    """hugezeroctl that goes on running."""
    kwargs = {"preexec_fn": heed_signals} | kwargs
    env = dict(os.environ, HUGEZERO_SOCKET=daemon.socket_path, **sanitizer_environment(None))
    command = [str(daemon.build / "tools" / "hugezeroctl"), *args]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)


@pytest.fixture
def start_hold():
    """start_hold(daemon, SPEC...) returns the process and the paths that it printed."""
    processes = []

    def hold(daemon, *specs, n_extents=1):
        process = start(daemon, "hold", *specs)
        processes.append(process)
        paths = [process.stdout.readline().rstrip("\n") for _ in range(n_extents)]
        assert all(paths), process.communicate()
        return process, paths

    yield hold
    for process in processes:
        process.kill()
        process.communicate()


def wait_no_grants(daemon):
    wait_until(lambda: not daemon.grants(), "everything came back")


# The contract


@pytest.mark.parametrize("words", [[], *([verb] for verb in VERBS)], ids=lambda words: " ".join(words) or "global")
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_fits_80_columns_and_goes_to_stdout(build, words, option):
    answer = ctl(build, *words, option)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("Usage: hugezeroctl " + "".join(words))
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert answer.stdout.endswith("\n")


def test_the_global_help_names_every_verb(build):
    text = ctl(build, "--help").stdout
    listed = [line.split()[0] for line in text.partition("Verbs:\n")[2].partition("\n\n")[0].splitlines()]
    assert listed == list(VERBS)


def test_the_version_is_the_projects(build):
    answer = ctl(build, "--version")
    version = json.loads((build / "meson-info" / "intro-projectinfo.json").read_text())["version"]
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"hugezeroctl {version}\n", "")


@pytest.mark.parametrize(
    "words, complaint",
    [
        ([], "no verb"),
        (["frobnicate"], "'frobnicate'"),
        (["--frobnicate"], "--frobnicate"),
        (["-x"], "-x"),
        (["--socket"], "--socket"),
        (["--socket=", "status"], "--socket="),
        (["status", "--socket", ""], "--socket"),
        (["--socket", "/" + 107 * "x", "status"], "at most 107 bytes"),
        (["status", "--socket", "/" + 107 * "x"], "at most 107 bytes"),
        (["run", "--grant", "name=a,bytes=2M,node=1024", "--", "true"], "at most 1023"),
        (["run", "--grant", "name=a,bytes=2M,page-size=2k", "--", "true"], "page-size=2k"),
        (["status", "--bogus"], "no such option"),
        (["status", "--json=yes"], "no value"),
        *(([verb, "--frobnicate"], "--frobnicate") for verb in VERBS),
        *(([verb, "--socket"], "--socket") for verb in VERBS),
        (["status", "pool"], "'pool'"),
        (["grants", "4711"], "'4711'"),
        (["doctor", "me"], "'me'"),
        (["bench", "fast"], "'fast'"),
        (["reload", "now"], "'now'"),
        (["resize"], "a pool and a size"),
        (["resize", "vm"], "a pool and a size"),
        (["resize", "vm", "much"], "'much'"),
        (["resize", "vm", "2M", "4M"], "'4M'"),
        (["resize", "", "2M"], "pool ''"),
        (["resize", "vm", "2M", "--node", "-1"], "--node -1"),
        (["drain", "vm"], "'vm'"),
        (["drain", "--pool", ""], "--pool: its value is empty"),
        (["drain", "--node", "all"], "--node all"),
        (["drain", "--wait=soon"], "--wait=soon"),
        (["drain", "--wait=99999999999999999h"], "too long; use infinity"),
        (["drain", "--wait=1x"], "--wait=10s"),
        (["drain", "--wait", "10"], "--wait=10s"),
        (["run"], "--grant"),
        (["run", "--", "true"], "--grant"),
        (["run", "--grant", "name=a,bytes=2M"], "command"),
        (["run", "--grant", "name=a,bytes=2M", "--"], "command"),
        (["run", "--grant", "bytes=2M", "--", "true"], "name="),
        (["run", "--grant", "name=a,bytes=2X", "--", "true"], "bytes=2X"),
        (["run", "--grant", "name=a,bytes=2M", "--grant", "name=a,bytes=2M", "--", "true"], "'a'"),
        (["run", *["--grant", "name=a,bytes=2M"] * 17, "--", "true"], "16"),
        (["run", "--wait=soon", "--grant", "name=a,bytes=2M", "--", "true"], "--wait=soon"),
        (["run", "--wait", "1s", "--grant", "name=a,bytes=2M", "--", "true"], "'1s'"),
        (["run", "--wait=1x", "--grant", "name=a,bytes=2M", "--", "true"], "ms, s, min or h as in --wait=10s"),
        (["hold", "--wait", "5min", "bytes=2M"], "--wait=10s"),
        (["run", "--wait=", "--grant", "name=a,bytes=2M", "--", "true"], "--wait="),
        (["run", "--wait=30h", "--fill", "--grant", "name=a,bytes=2M", "--", "true"], "--fill"),
        (["run", "--wait=9999h", "--grant", "name=a,bytes=2M", "--", "true"], "infinity"),
        (["run", "--grant", "name=a,bytes=2M", "--", "true", "{b.fd}"], "'b'"),
        (["run", "--grant", "name=a,bytes=2M", "--", "true", "{a.fdd}"], "'.fdd'"),
        (["hold"], "no grant"),
        (["hold", "8G"], "'8G'"),
        (["bench", "--runs", "0"], "--runs=0"),
        (["bench", "--bytes", "none"], "--bytes=none"),
        (["bench", "--page-size", "3M"], "--page-size=3M"),
        (["bench", "--node", "-1"], "--node=-1"),
        (["bench", "--latency", "--several"], "--latency"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_wrong_usage_is_named_on_stderr_with_exit_2(build, words, complaint):
    answer = ctl(build, *words)
    assert_complains(answer, 2, complaint)
    assert answer.stderr.splitlines()[-1].startswith("Try: hugezeroctl ")


@pytest.mark.parametrize("words", NEEDS_DAEMON.values(), ids=NEEDS_DAEMON.keys())
def test_without_a_daemon_the_exit_code_is_3_and_the_path_is_named(build, words, tmp_path):
    assert_complains(ctl(build, *words, socket_path=tmp_path / "missing"), 3, str(tmp_path / "missing"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
        stale.bind(str(tmp_path / "stale"))  # a socket file, but nobody listens
        assert_complains(ctl(build, *words, socket_path=tmp_path / "stale"), 3, str(tmp_path / "stale"))


def test_what_to_do_without_a_daemon_is_said_once(build, tmp_path):
    answer = ctl(build, "status", socket_path=tmp_path / "missing")
    assert len(answer.stderr.splitlines()) == 1
    for words in str(tmp_path / "missing"), "start hugezerod", "No such file":
        assert answer.stderr.count(words) == 1, answer.stderr


@pytest.mark.parametrize(
    "words",
    [["run", "--grant", "name=a,bytes=2M", "--wait=1s", "--", "true"], ["hold", "--wait=20ms", "bytes=2M"], ["drain", "--wait=1s"]],
    ids=["run", "hold", "drain"],
)
def test_a_daemon_that_does_not_answer_is_waited_for_as_long_as_the_user_says(build, words, tmp_path):
    """As systemd listens for a daemon that its configuration keeps from starting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(4)
        begin = time.monotonic()
        answer = ctl(build, *words, socket_path=tmp_path / "socket")
        assert 1 <= time.monotonic() - begin < 8, "not the 10 s of who says nothing"
    assert_complains(answer, 3, str(tmp_path / "socket"), "does not answer", '"hugezeroctl doctor"', "journalctl -u hugezerod")


def test_one_who_may_not_connect_is_told_once(start_daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for setting, reason in ("SocketMode=0600\n", "Permission denied; only root and members"), ("AllowUsers=1\n", "AllowUsers="):
        daemon = start_daemon(pools=["2M:auto:0"], config=setting)
        answer = daemon.control("status", user=NOBODY, group=NOBODY, extra_groups=[])
        assert_complains(answer, 1, daemon.socket_path, reason)
        assert len(answer.stderr.splitlines()) == 1 and answer.stderr.count("member") == answer.stderr.count("Permission"), answer.stderr


def test_the_socket_may_be_named_before_and_behind_the_verb(build, tmp_path):
    for words in ["--socket", tmp_path / "given", "status"], ["status", "--socket", tmp_path / "given"]:
        assert_complains(ctl(build, *words), 3, str(tmp_path / "given"))


def test_who_may_not_connect_is_told_so_with_exit_1(start_daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    daemon = start_full(start_daemon, config=QUICK + "SocketMode=0600\n")
    answer = daemon.control("status", user=NOBODY, group=NOBODY, extra_groups=[])
    assert_complains(answer, 1, daemon.socket_path, "Permission denied", "group")


def test_a_refusal_is_the_daemons_reason_with_exit_1(start_daemon):
    daemon = start_full(start_daemon)
    for spec in "name=a,bytes=1T", "name=a,bytes=2M,pool=nosuch", "name=a,bytes=2M,node=1000":
        with Client(daemon.socket_path) as client:
            words = dict(part.split("=") for part in spec.split(","))
            item = Item(bytes=1 << 40 if words["bytes"] == "1T" else PAGE_2M, pool=words.get("pool", ""))
            if "node" in words:
                item = Item(bytes=PAGE_2M, node=1000, mode="strict")
            with pytest.raises(Exception) as refusal:
                client.acquire([item])
        reason = str(refusal.value).rpartition(": ")[2]
        assert_complains(daemon.control("run", "--grant", spec, "--", "true"), 1, reason)
        assert_complains(daemon.control("hold", spec), 1, reason)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_that_ends_meanwhile_is_exit_3(start_daemon, number):
    daemon = start_full(start_daemon)
    with Client(daemon.socket_path) as client, client.acquire([Item(2 * MIB)]):
        process = start(daemon, "run", "--grant", "name=a,bytes=62M", "--grant", "name=b,bytes=2M", "--wait", "--", "true")
        wait_until(lambda: daemon.status()["n_waiting"] == 1, "the request waits")
        daemon.process.send_signal(number)
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout) == (3, "")
    assert daemon.socket_path in stderr
    daemon.clean()


def test_an_answer_that_cannot_be_written_is_a_failure(start_daemon):
    """Also of a program that was started without a standard output."""
    daemon = start_full(start_daemon)
    env = dict(os.environ, HUGEZERO_SOCKET=daemon.socket_path)
    verbs = "status", "grants", "run", "hold", "resize", "drain", "reload", "metrics", "bench", "doctor"
    small = "--bytes 2M --runs 1"
    answers = "status", "status --json", "grants", "grants --json", "metrics", "doctor --json", "hold bytes=2M", f"bench {small}", f"bench --json {small}"
    for words in (*answers, "--help", "--version", *(f"{verb} --help" for verb in verbs)):
        for output in ">&-", ">/dev/full":
            command = f"exec {daemon.build}/tools/hugezeroctl {words} {output}"
            answer = subprocess.run(["sh", "-c", command], env=env, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            assert answer.returncode == 1 and "standard output" in answer.stderr, (command, answer)


def test_without_a_standard_output_a_silent_success_is_one(start_daemon):
    daemon = start_full(start_daemon)
    env = dict(os.environ, HUGEZERO_SOCKET=daemon.socket_path)
    for words in "reload", "drain", "run --grant name=a,bytes=2M --fill -- true":
        if words.startswith("run"):
            daemon.control("reload")
        subprocess.run(["sh", "-c", f"exec {daemon.build}/tools/hugezeroctl {words} >&-"], env=env, timeout=60, check=True)


# status


def test_status_as_json_has_the_promised_keys(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:32M", "2M:2M:16M")
    status = json.loads(daemon.control("status", "--json").stdout)
    assert {"version", "nodes", "pools", "clients", "counters", "zeroed_per_granted_byte"} <= status.keys()
    assert {"exact", "cut", "grown", "built"} <= status["counters"].keys()
    assert status["zeroed_per_granted_byte"] is None
    assert status["clients"] == 1
    rows = {}
    for row in status["pools"]:
        rows.setdefault(row["name"], []).append(row)
    assert len(rows) == 2
    for row in status["pools"]:
        assert {
            "name", "node", "page_size_bytes", "extent_bytes", "target_bytes", "ready_bytes", "granted_bytes", "returned_bytes",
            "filling_bytes", "shortfall_bytes", "pinned_bytes", "largest_ready_bytes", "kernel_free_bytes",
        } <= row.keys()  # fmt: skip
        assert row["page_size_bytes"] == PAGE_2M
        assert row["ready_bytes"] == row["target_bytes"]
    assert sorted({row["extent_bytes"] for row in status["pools"]}) == [0, PAGE_2M]
    for node in status["nodes"]:
        mine = [row for row in status["pools"] if row["node"] == node["node"]]
        assert node["ready_bytes"] == sum(row["ready_bytes"] for row in mine) > 0


def test_options_of_hold_may_stand_behind_its_grants(start_daemon, start_hold):
    daemon = start_full(start_daemon, "2M:2M:16M")
    start_hold(daemon, "bytes=2M", "--wait=5s", "bytes=4M,several", "--no-reopen", n_extents=3)
    assert_complains(daemon.control("hold", "bytes=2M", "-x"), 2, "option -x: there is no such option")
    assert_complains(daemon.control("hold", "bytes=2M", "--wait", "5s"), 2, "--wait=10s")
    assert_complains(daemon.control("hold", "--no-reopen"), 2, "no grant is given")


def test_status_counts_what_was_granted(start_daemon, start_hold):
    daemon = start_full(start_daemon, "2M:2M:16M")
    start_hold(daemon, "--no-reopen", "bytes=2M")
    status = json.loads(daemon.control("status", "--json").stdout)
    assert status["counters"]["granted"] == status["counters"]["exact"] == 1
    assert status["grants"] == status["extents_granted"] == 1
    assert sum(row["granted_bytes"] for row in status["pools"]) == PAGE_2M
    counters = status["counters"]
    assert status["zeroed_per_granted_byte"] == pytest.approx(counters["zeroed_bytes"] / counters["granted_bytes"])
    assert daemon.control("run", "--no-reopen", "--grant", "name=a,bytes=1T", "--", "true").returncode == 1
    assert json.loads(daemon.control("status", "--json").stdout)["counters"]["refused"] == 1


def test_status_as_a_table_shows_each_pool_with_sizes_in_one_form(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:32M", "2M:2M:16M")
    text = daemon.control("status").stdout
    names = {row["name"] for row in daemon.pools()}
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()[0] in names}
    assert rows.keys() == names
    assert any(" auto " in row and " 2 MiB " in row for row in rows.values())


def test_status_shows_limits_and_their_use(start_daemon, start_hold):
    daemon = start_daemon(pools=["2M:2M:16M"], config="[Quota default]\nMaxBytes=8M\n")
    daemon.wait_full()
    start_hold(daemon, "bytes=6M,several", n_extents=3)
    text = re.sub(" +", " ", daemon.control("status").stdout)
    assert f"{os.geteuid()} bytes 6 MiB 8 MiB\n" in text
    assert re.search(r"^ ?all bytes 6 MiB none$", text, re.MULTILINE)
    limits = json.loads(daemon.control("status", "--json").stdout)["limits"]
    assert {"uid": os.geteuid(), "kind": "grants", "used": 1, "limit": 1024} in limits
    assert {"uid": None, "kind": "grants", "used": 1, "limit": None} in limits


# grants


def test_grants_show_who_asked_and_for_what(start_daemon, start_hold):
    daemon = start_full(start_daemon, "2M:2M:16M")
    process, _ = start_hold(daemon, "bytes=6M,several", n_extents=3)
    (grant,) = json.loads(daemon.control("grants", "--json").stdout)["grants"]
    assert (grant["uid"], grant["pid"], grant["comm"]) == (os.geteuid(), process.pid, "hugezeroctl")
    assert (grant["bytes"], [extent["bytes"] for extent in grant["extents"]]) == (6 * MIB, [2 * MIB] * 3)
    assert 0 <= grant["age_ms"] < 60000
    assert {extent["state"] for extent in grant["extents"]} == {"held"}
    assert "holders" not in grant["extents"][0]
    header, row = daemon.control("grants").stdout.splitlines()
    assert "HOLDERS" not in header
    for word in str(process.pid), "hugezeroctl", "6 MiB", "held":
        assert word in row


def test_a_grant_outlives_the_process_that_asked(start_daemon):
    daemon = start_full(start_daemon)
    answer = daemon.control("run", "--grant", "name=a,bytes=2M", "--", "sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!")
    sleeper = int(answer.stdout)
    try:
        (grant,) = json.loads(daemon.control("grants", "--json").stdout)["grants"]
        assert grant["pid"] != sleeper and grant["comm"] is None
        assert "(gone)" in daemon.control("grants").stdout
    finally:
        os.kill(sleeper, signal.SIGKILL)
    wait_no_grants(daemon)
    assert daemon.control("grants").stdout == "no grants\n"


def holders(daemon):
    """{pid: (descriptors, mappings)} of the only extent, without the daemon."""
    answer = daemon.control("grants", "--holders", "--json")
    assert answer.returncode == 0, answer.stderr
    (grant,) = json.loads(answer.stdout)["grants"]
    (extent,) = grant["extents"]
    assert [row["pid"] for row in extent["holders"] if row["daemon"]] == [daemon.pid]
    return {row["pid"]: (row["fds"], row["mappings"]) for row in extent["holders"] if not row["daemon"]}


def test_holders_are_found_by_descriptor_and_by_mapping_alone(start_daemon, start_child):
    if os.geteuid() != 0:
        pytest.skip("only root may look into all processes")
    daemon, child = start_full(start_daemon), start_child()
    child.call(holder.acquire, daemon.socket_path, PAGE_2M)
    child.call(holder.disconnect)
    assert holders(daemon) == {child.pid: (1, 0)}
    child.call(holder.map_all)
    assert holders(daemon) == {child.pid: (1, 1)}
    child.call(holder.close_fds)
    assert holders(daemon) == {child.pid: (0, 1)}
    text = daemon.control("grants", "--holders").stdout
    assert f"{child.pid} " in text and "(mapping only)" in text and "hugezerod" not in text
    child.kill()
    wait_no_grants(daemon)


def test_others_than_root_see_their_own_grants_and_no_holders(start_daemon, start_hold):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    daemon = start_full(start_daemon)
    start_hold(daemon, "bytes=2M")
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    assert json.loads(daemon.control("grants", "--json", **other).stdout) == {"grants": []}
    assert_complains(daemon.control("grants", "--holders", **other), 1, "root")


# run


def test_run_hands_over_zeroed_memory_by_number_and_by_path(start_daemon):
    daemon = start_full(start_daemon)
    answer = daemon.control("run", "--grant", "name=ram0,bytes=4M", "--grant", "name=ram1,bytes=2M,page-size=2M,node=local",
                            "--", sys.executable, "-c", PROGRAM, "{ram0.path}", "{ram1.fd}")  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == [[4 * MIB] * 2, [2 * MIB] * 2]
    assert daemon.status()["n_granted_total"] == 1, "both come from one request"
    wait_no_grants(daemon)


def test_run_replaces_placeholders_inside_of_words_and_leaves_other_braces(start_daemon):
    daemon = start_full(start_daemon)
    answer = daemon.control("run", "--grant", "name=a,bytes=3M", "--", "printf", "%s\\n", "size={a.bytes},mem-path={a.path}", '{"x": {}}', "{a.b.c}")
    size, braces, dots = answer.stdout.splitlines()
    assert size.startswith(f"size={4 * MIB},mem-path=/proc/self/fd/")
    assert (braces, dots) == ('{"x": {}}', "{a.b.c}")


def test_run_passes_the_grant_and_nothing_else(start_daemon):
    daemon = start_full(start_daemon)
    answer = daemon.control("run", "--grant", "name=a,bytes=2M", "--", "find", "/proc/self/fd", "-printf", "%f %l\\n")
    links = dict(line.split(" ", 1) for line in answer.stdout.splitlines() if line[0].isdigit())
    # What find itself has open are folders, the last of them in /proc
    beyond = [target for fd, target in links.items() if int(fd) > 2 and not target.startswith("/proc/") and not os.path.isdir(target)]
    assert len(beyond) == 1 and beyond[0].startswith("/memfd:"), links


def test_run_ends_as_its_command_ends(start_daemon):
    daemon = start_full(start_daemon)
    assert daemon.control("run", "--grant", "name=a,bytes=2M", "--", "sh", "-c", "exit 42").returncode == 42
    assert_complains(daemon.control("run", "--grant", "name=a,bytes=2M", "--", "/nosuch/program"), 1, "/nosuch/program")
    wait_no_grants(daemon)


def test_a_wrong_placeholder_is_found_before_anything_is_acquired(start_daemon):
    daemon = start_full(start_daemon)
    assert_complains(daemon.control("run", "--grant", "name=a,bytes=2M", "--", "echo", "{b.fd}"), 2, "'b'")
    assert daemon.status()["n_granted_total"] == 0


def test_several_extents_become_lists(start_daemon):
    daemon = start_full(start_daemon, "2M:2M:16M")
    run = "run", "--grant", "name=a,bytes=6M,several", "--", sys.executable, "-c", PROGRAM
    for placeholder in "{a.fd}", "{a.path}":
        assert json.loads(daemon.control(*run, placeholder).stdout) == [[2 * MIB] * 2] * 3
    assert_complains(daemon.control("run", "--grant", "name=a,bytes=6M", "--", "true"), 1, "hugezeroctl: acquiring")


def test_a_refusal_names_the_grant(start_daemon):
    daemon = start_full(start_daemon)
    good, bad = "bytes=2M", "bytes=2M,pool=nosuch"
    run = "run", "--grant", f"name=ram0,{good}", "--grant", f"name=ram1,{bad}", "--", "true"
    assert_complains(daemon.control(*run), 1, "acquiring 'ram1'", 'there is no pool "nosuch"')
    assert "item" not in daemon.control(*run).stderr
    assert_complains(daemon.control("hold", good, bad), 1, f"acquiring '{bad}'", "no pool")
    assert_complains(daemon.control("hold", f"name=b,{bad}", good), 1, "acquiring 'b'")


def test_run_waits_as_long_as_it_was_told(start_daemon, start_hold):
    daemon = start_full(start_daemon, "2M:2M:4M")
    process, _ = start_hold(daemon, "bytes=2M", "bytes=2M", n_extents=2)
    run = "--grant", "name=a,bytes=2M", "--", "echo", "got it"
    assert_complains(daemon.control("run", *run), 1)
    assert_complains(daemon.control("run", "--wait=50ms", *run), 1)
    waiting = start(daemon, "run", "--wait", *run)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "the request waits")
    process.terminate()
    assert waiting.communicate(timeout=20) == ("got it\n", "")


def test_a_member_of_the_socket_group_opens_the_path_as_an_ordinary_user(start_daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    daemon = start_full(start_daemon, config=QUICK + f"SocketGroup={GROUP}\nSocketMode=0660\n")
    member = {"user": NOBODY, "group": NOBODY, "extra_groups": [GROUP]}
    answer = daemon.control("run", "--grant", "name=a,bytes=2M", "--", sys.executable, "-c", PROGRAM, "{a.path}", "{a.fd}", **member)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)[0] == [2 * MIB] * 2


def test_without_a_socket_group_an_ordinary_user_is_told_what_to_do(start_daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    daemon = start_full(start_daemon)
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    run = "--grant", "name=a,bytes=2M", "--", sys.executable, "-c", PROGRAM
    assert_complains(daemon.control("run", *run, "{a.path}", **other), 1, "SocketGroup=", "--no-reopen")
    answer = daemon.control("run", "--no-reopen", *run, "{a.fd}", **other)
    assert json.loads(answer.stdout) == [[2 * MIB] * 2], answer.stderr
    # Whom the daemon's file modes do not keep out gets a plain grant without having to ask for it
    assert json.loads(daemon.control("run", *run, "{a.path}").stdout) == [[2 * MIB] * 2]


# hold


def test_hold_keeps_memory_but_no_connection(start_daemon, start_hold):
    daemon = start_full(start_daemon)
    start_hold(daemon, "bytes=2M")
    status = wait_until(lambda: (now := daemon.status())["n_clients"] == 1 and now, "only the one that asks is connected")
    assert status["n_grants"] == 1


def test_hold_prints_paths_that_others_open_until_a_signal_comes(start_daemon, start_hold):
    daemon = start_full(start_daemon, "2M:2M:16M")
    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        process, paths = start_hold(daemon, "bytes=4M,several", "bytes=2M", n_extents=3)
        assert all(path.startswith(f"/proc/{process.pid}/fd/") for path in paths) and len(set(paths)) == 3
        for path in paths:
            status = pathlib.Path(path).stat()
            assert status.st_size == PAGE_2M and stat.S_ISREG(status.st_mode)
            assert not any(pathlib.Path(path).read_bytes())
        process.send_signal(number)
        assert process.communicate(timeout=20) == ("", "") and process.returncode == 0
        wait_no_grants(daemon)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_hold_outlives_what_its_caller_ignores(start_daemon, number):
    """As nohup does, and a shell with its jobs in the background."""
    daemon = start_full(start_daemon)
    process = start(daemon, "hold", "bytes=2M", preexec_fn=lambda: signal.signal(number, signal.SIG_IGN))
    assert process.stdout.readline()
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    assert not any(mask & 1 << number - 1 for mask in pending) and process.poll() is None and daemon.grants()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    wait_no_grants(daemon)


def test_a_holder_that_is_killed_gives_its_memory_back(start_daemon, start_hold):
    daemon = start_full(start_daemon)
    process, _ = start_hold(daemon, "bytes=2M")
    process.kill()
    wait_no_grants(daemon)
