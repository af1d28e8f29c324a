# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezeroctl bench and doctor. What is measured is real, how much it is depends on the machine: suite bench asserts that."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest
from harness import wait_until
from harness.child import cgroup_root
from harness.pages import MIB, PAGE_1G, PAGE_2M, count, need_pages
from test_ctl import assert_complains, ctl, start

QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"
PARTS = ["clear", "procs", "churn"]
MODES = ["demand", "populate", "populate-parallel", "pool"]


def start_full(start_daemon, *pools):
    need_pages(256)
    daemon = start_daemon(pools=pools, config=QUICK)
    daemon.wait_full()
    return daemon


def bench(daemon, *args):
    answer = daemon.control("bench", "--json", *args)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.mark.parametrize("pool, args", [("2M:auto:64M", []), ("2M:2M:64M", ["--several"])], ids=["one extent", "several"])
def test_bench_measures_all_modes_and_the_pool_recovers_for_each_run(start_daemon, pool, args):
    daemon = start_full(start_daemon, pool)
    result = bench(daemon, "--bytes", "32M", "--runs", "3", *args)
    assert (result["bytes"], result["page_size_bytes"], result["runs"]) == (32 * MIB, PAGE_2M, 3)
    assert list(result["modes"]) == MODES
    for mode in result["modes"].values():
        assert 0 < mode["min_ms"] <= mode["median_ms"] <= mode["p99_ms"] <= mode["max_ms"]
        assert mode["gb_per_s"] == pytest.approx(32 * MIB / 1e6 / mode["median_ms"], rel=1e-4)
    modes = result["modes"]
    for key, mode in ("ratio_demand_over_pool", "demand"), ("ratio_parallel_over_pool", "populate-parallel"):
        assert result[key] == pytest.approx(modes[mode]["median_ms"] / modes["pool"]["median_ms"], rel=1e-4)
    # A round that does not count, and one for each run; in each of them the first of two requests does not count
    assert daemon.status()["n_granted_total"] == 2 * (1 + 3)


def test_bench_says_which_of_what_was_asked_for_no_pool_has(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:8M")
    pool = daemon.pool()["name"]
    for words, complaint in {
        "--page-size 1G": "no pool has pages of 1 GiB; hugezeroctl status lists them, --page-size names another size",
        "--latency --page-size 1G": "no pool has pages of 1 GiB; hugezeroctl status lists them, --page-size names another size",
        f"--page-size 1G --pool {pool}": f"'{pool}': it has pages of 2 MiB, not of 1 GiB; leave out --page-size or --pool",
        "--pool nosuch": "'nosuch': the daemon has none of this name; hugezeroctl status lists them",
        "--pool nosuch --page-size 2M": "'nosuch': the daemon has none of this name; hugezeroctl status lists them",
        "--node 1000": "node 1000: there is no such node, or it has no memory; /sys/devices/system/node/has_memory lists the nodes",
    }.items():
        answer = daemon.control("bench", *words.split())
        assert_complains(answer, 1)
        assert answer.stderr.endswith(f": {complaint}\n"), answer.stderr


@pytest.mark.parametrize("part", [[], ["--latency"], ["clear"], ["procs"], ["churn"]], ids=" ".join)
def test_bench_complains_of_its_arguments_before_all_else(build, tmp_path, part):
    missing = tmp_path / "missing"
    if "churn" not in part:
        assert_complains(ctl(build, "bench", *part, "--bytes", "16E", socket_path=missing), 2, "16E", "too large")
    assert_complains(ctl(build, "bench", *part, "--page-size", "4k", socket_path=missing), 2, "--page-size=4k", "this kernel has no hugepages of that size")
    assert_complains(ctl(build, "bench", *part, "--page-size", "3M", socket_path=missing), 2, "--page-size=3M")


def test_bench_as_a_table_has_a_row_for_each_mode(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:32M")
    text = daemon.control("bench", "--bytes", "8M", "--runs", "1").stdout
    assert [line.split()[0] for line in text.splitlines()[2:6]] == MODES
    assert "times as long" in text


def test_bench_measures_the_latency_of_one_extent(start_daemon):
    daemon = start_full(start_daemon, "2M:2M:64M")
    result = bench(daemon, "--latency", "--runs", "8")
    for name in "acquire", "raw", "kernel":
        assert 0 < result[f"{name}_us_p50"] <= result[f"{name}_us_p99"]
    assert result["ratio_acquire_over_raw"] == pytest.approx(result["acquire_us_p50"] / result["raw_us_p50"], rel=1e-4)
    text = daemon.control("bench", "--latency", "--runs", "4", "--pool", daemon.pool()["name"]).stdout
    assert "raw exchange" in text


def test_the_latency_of_fixed_extents_is_that_of_one_of_theirs(start_daemon):
    daemon = start_full(start_daemon, "2M:8M:160M")
    result = bench(daemon, "--latency", "--runs", "4")
    assert (result["page_size_bytes"], result["extent_bytes"], result["runs"]) == (PAGE_2M, 8 * MIB, 4)
    assert daemon.status()["granted_bytes_total"] == 2 * (4 + 16) * 8 * MIB
    # As many runs as the pool has extents for, where nobody says how many
    assert bench(daemon, "--latency")["runs"] == 10
    assert_complains(daemon.control("bench", "--latency", "--runs", "21"), 1, "21 extents of 8 MiB", "160 MiB", "--runs")


def test_bench_measures_whole_extents_of_a_fixed_size(start_daemon):
    daemon = start_full(start_daemon, "2M:8M:64M")
    assert bench(daemon, "--bytes", "10M", "--runs", "1", "--several")["bytes"] == 16 * MIB
    answer = daemon.control("bench", "procs", "--json", "--bytes", "10M", "--runs", "1", "--several")
    result = json.loads(answer.stdout)
    assert result["bytes"] == -(-10 * MIB // (8 * MIB * result["processes"])) * 8 * MIB * result["processes"]


def test_a_pool_of_large_extents_learns_the_size_before_its_latency_is_measured(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:64M")
    assert daemon.pool()["largest_ready_bytes"] > PAGE_2M
    before = daemon.status()
    bench(daemon, "--latency", "--runs", "8")
    after = daemon.status()
    # Two rounds of eight, and of the sixteen that warm up in each; the second is served from what the first has left
    assert after["n_granted_total"] - before["n_granted_total"] == 48
    assert after["n_exact"] - before["n_exact"] >= 24


def test_bench_says_why_it_cannot_measure(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:32M")
    assert_complains(daemon.control("bench", "--bytes", "64M"), 1, "64 MiB", "32 MiB")
    fixed = start_full(start_daemon, "2M:2M:32M")
    answer = fixed.control("bench", "--bytes", "4M", "--runs", "1")
    assert_complains(answer, 1, "hugezeroctl: acquiring: ", "ask for several")
    assert "item" not in answer.stderr
    assert_complains(daemon.control("bench", "--pool", "nosuch"), 1, "'nosuch'")
    assert_complains(daemon.control("bench", "--node", "1000"), 1, "node 1000")


def test_bench_lends_the_pages_of_the_pool_and_gives_them_back(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:64M")
    result = bench(daemon, "--bytes", "64M", "--runs", "2", "--lend")
    assert list(result["modes"]) == MODES
    daemon.wait_full()
    after = daemon.pool()
    assert after["target_bytes"] == 64 * MIB
    # Each of three rounds emptied it and had the kernel zero everything anew; the first filling makes four
    assert daemon.status()["zeroed_bytes_total"] >= 4 * 64 * MIB


def test_bench_lends_one_named_pool_only_and_keeps_it_when_it_fails(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:32M", "2M:auto:32M")
    assert_complains(daemon.control("bench", "--bytes", "32M", "--lend"), 1, "2 pools", "--pool")
    assert_complains(daemon.control("bench", "--latency", "--lend"), 2, "--lend")
    daemon.wait_full()
    assert [pool["target_bytes"] for pool in daemon.pools()] == [32 * MIB] * 2


@pytest.mark.large
def test_bench_counts_the_pages_that_the_kernel_lacks(start_daemon):
    """A pool that has taken all free pages leaves none for the kernel's modes."""
    need_pages(1, PAGE_1G)
    node = int(pathlib.Path("/sys/devices/system/node/has_memory").read_text().split("-")[0].split(",")[0])
    daemon = start_daemon(pools=[f"1G:1G:{count('free', PAGE_1G, node)}G@{node}"], config=QUICK)
    daemon.wait_full()
    answer = daemon.control("bench", "--page-size", "1G", "--bytes", "1G", "--node", str(node))
    assert_complains(answer, 1, "1 free page of 1 GiB is needed", "0 are there", "reserve 1 more")


# bench clear


def test_bench_clear_measures_every_method_beside_the_kernel(build, tmp_path):
    need_pages(64)
    answer = ctl(build, "bench", "clear", "--bytes", "64M", "--runs", "2", "--no-harm", "--json", socket_path=tmp_path / "missing")
    assert (answer.returncode, answer.stderr) == (0, "")
    result = json.loads(answer.stdout)
    assert (result["bytes"], result["page_size_bytes"], result["runs"]) == (64 * MIB, PAGE_2M, 2)
    chunks = result["chunks"]
    assert [chunk["bytes"] for chunk in chunks] == [4096, 2 * MIB, 32 * MIB, 1024 * MIB]
    usable = {method["method"]: method["gb_per_s"] for method in result["methods"] if method["why_not"] is None}
    assert {"memset", "generic"} <= usable.keys()
    for method in result["methods"]:
        if method["why_not"] is not None:
            assert method["gb_per_s"] == [None] * 4
    for speeds in usable.values():
        assert speeds[3] is None  # there are 64 MiB only
        for speed in speeds[:3]:
            assert 0 < speed["min"] <= speed["median"] <= speed["max"]
    for mode in "demand", "populate":
        speeds = result["kernel"][mode]
        assert speeds[0] is None and speeds[3] is None  # it clears whole pages
        assert 0 < speeds[1]["min"] <= speeds[2]["max"] * 100
    for idx in 1, 2:
        chunk = chunks[idx]
        best = max(speeds[idx]["median"] for speeds in usable.values())
        assert usable[chunk["best"]][idx]["median"] == best
        assert chunk["ratio_best_over_demand"] == pytest.approx(best / result["kernel"]["demand"][idx]["median"])
        assert chunk["ratio_best_over_populate"] == pytest.approx(best / result["kernel"]["populate"][idx]["median"])
        chosen = usable[chunk["chosen"]][idx]["median"]
        assert chunk["ratio_chosen_over_best"] == pytest.approx(chosen / best)
        assert chunk["ratio_chosen_over_memset"] == pytest.approx(chosen / usable["memset"][idx]["median"])
    assert chunks[3]["best"] is None and chunks[3]["ratio_best_over_demand"] is None
    assert chunks[1]["chosen"] in result["calibration"]["reason"]
    assert chunks[3]["chosen"] is None and " 128 MiB: " not in result["calibration"]["reason"]
    assert result["calibration"]["took_ms"] <= 310  # of CPU time: no matter how busy the machine is


def test_bench_clear_says_nothing_of_chunks_that_it_has_no_memory_for(build):
    need_pages(1)
    result = json.loads(ctl(build, "bench", "clear", "--bytes", "2M", "--runs", "1", "--no-harm", "--json").stdout)
    assert [chunk["chosen"] is None for chunk in result["chunks"]] == [False, False, True, True]
    assert " 32 MiB: " not in result["calibration"]["reason"]
    text = ctl(build, "bench", "clear", "--bytes", "2M", "--runs", "1", "--no-harm").stdout
    (row,) = [line.split() for line in text.splitlines() if line.startswith("chosen ")][:1]
    assert row[3:] == ["-", "-"] and "-" not in row[:3]


def test_bench_clear_measures_what_a_neighbour_loses(build):
    need_pages(32)
    answer = ctl(build, "bench", "clear", "--bytes", "64M", "--runs", "1", "--json")
    result = json.loads(answer.stdout)
    harm, methods = result["harm"], [row["method"] for row in result["methods"] if row["why_not"] is None]
    if len(os.sched_getaffinity(0)) == 1:
        assert harm is None
        return
    assert harm["cpu"] != harm["neighbour_cpu"] and harm["ring_bytes"] == 8 * MIB
    rows = harm["rows"]
    assert [(row["what"], row["pace_bytes_per_s"]) for row in rows] == [
        (what, pace) for what in ("kernel", *methods) for pace in (None, 2048 * MIB)
    ]
    for row in rows:
        assert row["runs"] + row["discarded"] > 0
        if row["runs"] == 0:
            assert row["slowdown"] is None
            continue
        assert 0 < row["min"] <= row["slowdown"] <= row["max"]
        if row["pace_bytes_per_s"]:
            # One slice is ahead of the pace at any time, which is much of a short run
            assert row["gb_per_s"] * 1e9 < row["pace_bytes_per_s"] * 1.5


def test_bench_clear_as_tables(build):
    need_pages(32)
    text = ctl(build, "bench", "clear", "--bytes", "64M", "--runs", "1").stdout
    words = [line.split()[0] for line in text.splitlines() if line]
    assert {"memset", "demand", "populate", "best/demand", "chosen", "calibration,"} <= set(words)
    assert words.count("kernel") == 2 or len(os.sched_getaffinity(0)) == 1


def test_bench_clear_complains_in_its_own_name(build):
    assert_complains(ctl(build, "bench", "clear", "--bytes", "100T"), 1, "free pages of 2 MiB are needed")
    assert_complains(ctl(build, "bench", "clear", "--runs", "0"), 2, "--runs=0", "hugezeroctl bench clear --help")
    assert_complains(ctl(build, "bench", "clear", "fast"), 2, "'fast'")


# bench procs


@pytest.mark.parametrize("pool, args", [("2M:auto:64M", []), ("2M:2M:64M", ["--several"])], ids=["one extent", "several"])
def test_bench_procs_writes_in_one_process_per_cpu(start_daemon, pool, args):
    daemon = start_full(start_daemon, pool)
    n_cpus = len(os.sched_getaffinity(0))
    answer = daemon.control("bench", "procs", "--json", "--bytes", "15M", "--runs", "2", *args)
    assert (answer.returncode, answer.stderr) == (0, "")
    result = json.loads(answer.stdout)
    assert result["processes"] <= n_cpus and result["runs"] == 2  # those of one node
    unit = PAGE_2M * result["processes"]
    assert result["bytes"] == -(-15 * MIB // unit) * unit
    assert list(result["modes"]) == ["demand", "pool", "present"]
    for mode in result["modes"].values():
        assert 0 < mode["min_ms"] <= mode["median_ms"] <= mode["max_ms"]
        assert mode["gb_per_s"] == pytest.approx(result["bytes"] / 1e6 / mode["median_ms"], rel=1e-4)
    modes = result["modes"]
    assert result["ratio_demand_over_pool"] == pytest.approx(modes["demand"]["median_ms"] / modes["pool"]["median_ms"], rel=1e-4)
    # One request of each process in each round, of which there is one more than counts
    assert daemon.status()["n_granted_total"] == 3 * result["processes"]
    text = daemon.control("bench", "procs", "--bytes", "8M", "--runs", "1", *args).stdout
    assert text.splitlines()[0].endswith(f"{result['processes']} process{'es' if result['processes'] != 1 else ''}, 1 run")
    assert [line.split()[0] for line in text.splitlines()[2:5]] == ["demand", "pool", "present"]


def test_bench_procs_says_which_process_was_killed(start_daemon):
    need_pages(64)
    daemon = start_daemon(pools=["2M:auto:64M"])
    daemon.wait_full()
    env = dict(os.environ, HUGEZERO_SOCKET=daemon.socket_path)
    command = [daemon.build / "tools" / "hugezeroctl", "bench", "procs", "--bytes", "32M", "--runs", "1000", "--several"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def kill_one():
            for pid in children.read_text().split() if process.poll() is None else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
                break
            return process.poll() is not None

        wait_until(kill_one, "it has ended")
        stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (1, "")
    assert re.fullmatch(r"hugezeroctl: process \d+ of \d+ was killed by signal 9 \(Killed\): nothing was measured; .*\n", stderr)


def test_bench_procs_says_why_it_cannot_measure(start_daemon, build, tmp_path):
    daemon = start_full(start_daemon, "2M:auto:32M")
    assert_complains(daemon.control("bench", "procs", "--bytes", "64M"), 1, "64 MiB", "32 MiB")
    assert_complains(ctl(build, "bench", "procs", socket_path=tmp_path / "missing"), 3, "no daemon")
    # The processes themselves are refused: one of them says so, and none is left waiting for the others
    daemon = start_full(start_daemon, "2M:2M:32M")
    answer = daemon.control("bench", "procs", "--bytes", "32M", "--runs", "1")
    assert_complains(answer, 1, "hugezeroctl: acquiring: ")
    assert answer.stderr.count("\n") == 1, answer


# bench churn


def churn(daemon, *args):
    answer = daemon.control("bench", "churn", "--json", "--seconds", "2", *args)
    assert (answer.returncode, answer.stderr) == (0, "")
    return json.loads(answer.stdout)


def test_bench_churn_adds_up(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:64M")
    result = churn(daemon)
    after = daemon.status()
    assert (result["seconds"], result["target_bytes"], result["page_size_bytes"]) == (2, 64 * MIB, PAGE_2M)
    # Five that were given back before, and those of the services; no more than four a second of each
    assert after["n_granted_total"] == 5 + result["granted"]
    assert 0 < result["instant"] <= result["granted"] <= 2 * 9
    assert result["instant_share"] == pytest.approx(result["instant"] / (result["granted"] + result["refused"]))
    assert 0 < result["wait_ms_p50"] <= result["wait_ms_p99"]
    assert result["granted"] * PAGE_2M <= result["granted_bytes"] <= result["granted"] * 16 * MIB
    assert after["granted_bytes_total"] - result["granted_bytes"] == 5 * 8 * MIB
    assert result["zeroed_per_granted_byte"] == pytest.approx(result["zeroed_bytes"] / result["granted_bytes"])
    assert result["zeroed_bytes"] >= result["scrubbed_bytes"] > 0
    assert result["exact"] + result["cut"] + result["grown"] + result["built"] == result["granted"]
    assert result["daemon_cpu_s_per_gib"] == pytest.approx(result["daemon_cpu_s"] / result["granted_bytes"] * 2**30)
    assert result["return_to_ready_ms"] >= 50  # ReleaseGrace=


def test_bench_churn_makes_two_services_and_removes_them(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:64M")
    process = start(daemon, "bench", "churn", "--json", "--seconds", "1")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    services = json.loads(output)["services"]
    if os.geteuid() != 0:
        assert services in ("one", "cgroups")  # the latter where a cgroup was delegated
    else:
        assert services == ("cgroups" if cgroup_root() else "users")
    assert not list(pathlib.Path("/sys/fs/cgroup").glob(f"**/hugezero-bench-{process.pid}-*"))


def test_bench_churn_prints_sentences_and_complains(start_daemon, build, tmp_path):
    daemon = start_full(start_daemon, "2M:auto:64M")
    text = daemon.control("bench", "churn", "--seconds", "1").stdout
    for words in "served at once", "p99", "bytes for each byte granted", "for each GiB granted", "then ready after":
        assert words in text
    assert_complains(daemon.control("bench", "churn", "--seconds", "0"), 2, "--seconds=0", "bench churn --help")
    assert_complains(daemon.control("bench", "churn", "--pool", "nosuch"), 1, "'nosuch'")
    assert_complains(ctl(build, "bench", "churn", socket_path=tmp_path / "missing"), 3, "no daemon")


def test_bench_churn_complains_once_when_both_services_lose_the_daemon(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:64M")
    process = start(daemon, "bench", "churn", "--seconds", "60")
    wait_until(lambda: daemon.status()["n_granted_total"] >= 5 + 4, "both services are served")  # five are given back before
    daemon.kill()
    output, errors = process.communicate(timeout=20)
    daemon.clean()
    assert (process.returncode, output) == (3, "") and errors.count("\n") == 1, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_bench_churn_that_is_interrupted_leaves_nothing_behind(start_daemon, build, number):
    daemon = start_full(start_daemon, "2M:auto:32M")
    command = [build / "tools/hugezeroctl", "--socket", daemon.socket_path, "bench", "churn", "--seconds", "20"]
    # In the background of a shell, or under nohup, some of them are ignored, and that is inherited
    # pylint: disable=subprocess-popen-preexec-fn
    program = subprocess.Popen(command, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    try:
        services = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children")
        wait_until(lambda: len(services.read_text().split()) == 2, "two services")
        pids = [int(pid) for pid in services.read_text().split()]
        program.send_signal(number)
        assert program.wait(10) == -number
    finally:
        program.kill()
        program.wait()
    assert [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()] == []
    assert not cgroup_root() or not list(cgroup_root().rglob(f"hugezero-bench-{program.pid}-*"))


@pytest.mark.parametrize("part", PARTS)
def test_the_help_of_a_part_fits_80_columns(build, part):
    answer = ctl(build, "bench", part, "--help")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith(f"Usage: hugezeroctl bench {part} ")
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert f"  {part} " in ctl(build, "bench", "--help").stdout


# doctor


def diagnose(answer):
    diagnosis = json.loads(answer.stdout)
    levels = [finding["level"] for finding in diagnosis["findings"]]
    assert diagnosis["problems"] == levels.count("problem") and diagnosis["notes"] == levels.count("note")
    assert answer.returncode == int(diagnosis["problems"] > 0), answer
    for finding in diagnosis["findings"]:
        assert finding.keys() == {"check", "level", "text", "advice"}
        assert (finding["advice"] is None) == (finding["level"] == "ok"), finding
    return diagnosis["findings"]


def test_doctor_works_without_a_daemon_and_tries_the_kernel(build, tmp_path):
    findings = diagnose(ctl(build, "doctor", "--json", socket_path=tmp_path / "missing"))
    (connection,) = [finding for finding in findings if finding["check"] == "socket"]
    assert connection["level"] == "note" and str(tmp_path / "missing") in connection["text"]
    checks = {finding["check"] for finding in findings}
    assert {"pages", "cgroup", "nofile", "memlock", "inotify", "maps", "kernel", "init_on_alloc"} <= checks
    tried = {finding["check"]: finding["level"] for finding in findings}
    # What hugezero cannot do without is there wherever these tests run at all
    assert {tried[name] for name in ("populate", "memfd", "flock")} == {"ok"}
    assert {"sharing", "passrights", "leases"} <= checks


def test_doctor_looks_at_the_daemon_that_answers(start_daemon):
    daemon = start_full(start_daemon, "2M:auto:32M")
    findings = diagnose(daemon.control("doctor", "--json"))
    connection = [finding for finding in findings if finding["check"] == "socket"]
    assert connection[0]["level"] == "ok" and daemon.socket_path in connection[0]["text"]
    # The harness lets everybody in
    assert connection[1]["level"] == "note" and "SocketMode=" in connection[1]["advice"]
    assert any("the daemon may open" in finding["text"] for finding in findings if finding["check"] == "nofile")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    "config, folder_mode, text, advice",
    [
        ("SocketMode=0660\n", 0o755, "may not connect", "SocketGroup="),
        ("SocketMode=0660\nSocketGroup=daemon\n", 0o755, "may not connect", "usermod -aG daemon"),
        ("SocketMode=0600\nSocketGroup=daemon\n", 0o755, "may not connect", "SocketMode=0660"),
        ("AllowUsers=1\n", 0o755, "AllowUsers=", "AllowGroups="),
        ("SocketMode=0666\n", 0o700, "may not enter a folder", "namei -l"),
    ],
    ids=["group of root", "another group", "closed to its group", "not served", "folder"],
)
def test_doctor_tells_who_is_kept_out_by_what(start_daemon, config, folder_mode, text, advice):
    daemon = start_daemon(pools=["2M:auto:0"], config=config)
    folder = pathlib.Path(daemon.socket_path).parent
    before = folder.stat().st_mode & 0o777
    folder.chmod(folder_mode)
    try:
        answer = daemon.control("doctor", "--json", user=65534, group=65534, extra_groups=[])
        status = daemon.control("status", user=65534, group=65534, extra_groups=[])
    finally:
        folder.chmod(before)
    (finding,) = [finding for finding in diagnose(answer) if finding["check"] == "socket"]
    assert finding["level"] == "problem" and text in finding["text"] and advice in finding["advice"], finding
    assert_complains(status, 1, daemon.socket_path, "a folder of the path" if folder_mode == 0o700 else "")
    assert folder_mode != 0o700 or "group" not in status.stderr


def test_doctor_leaves_no_page_and_no_file_behind(build):
    need_pages(64)
    before = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages").read_text()
    ctl(build, "doctor")
    assert pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages").read_text() == before


def test_doctor_finds_a_made_up_host_ill(build, tmp_path):
    for name in "proc", "sys":
        (tmp_path / name).mkdir()
    findings = diagnose(ctl(build, "doctor", "--json", "--root", tmp_path))
    (pages,) = [finding for finding in findings if finding["check"] == "pages"]
    assert pages["level"] == "problem"
    text = ctl(build, "doctor", "--root", tmp_path)
    assert text.returncode == 1
    assert "PROBLEM  pages: " in text.stdout and "-> " in text.stdout and "1 problem" in text.stdout
