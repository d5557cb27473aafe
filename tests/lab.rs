//! Tests labs as users use them: the links match the cluster file, two labs are isolated, and nothing remains of a lab
//! that is removed or killed.
//!
//! Without root, or without `ip` and `tc`, the refusal is tested instead.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::commands::{folder, lockstep, skipped, stdout};

const CLUSTER: &str = "name = \"three\"\nprovenance = \"assumed\"\n[[host]]\nname = \"node\"\ncount = 3\n[host.cpu]\ncores = 1\n\
flops_per_core = \"1GFLOP/s\"\nmemory_bandwidth = \"1GB/s\"\nmemory = \"1GiB\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"1GB/s\"\n\
[[switch]]\nname = \"switch\"\n[[link]]\nkind = \"ethernet\"\nbetween = [\"node*.cpu\", \"switch\"]\nlatency = \"20us\"\n\
bandwidth = \"100Mbit/s\"\n";

/// Where programs for root are, which a search path may lack.
const SBIN: &str = "PATH=$PATH:/usr/sbin:/sbin";

/// The kernel features that a lab needs, in a namespace that disappears with the shell.
const NEEDED: &str = "PATH=$PATH:/usr/sbin:/sbin; echo probe >/proc/sys/kernel/hostname && ip link add v0 type veth peer name v1 && ip link add b0 type bridge && \
                      tc qdisc add dev v0 root tbf rate 1mbit burst 32kb latency 10ms";

/// Whether labs can be created here; if not, reports why, and checks that `lab up` says so too.
fn labs_work(folder: &PathBuf) -> bool {
    let has = |program: &str| {
        Command::new("sh").args(["-c", &format!("{SBIN}; command -v {program}")]).stdout(Stdio::null()).status()
    };
    let missing =
        ["ip", "tc", "unshare"].into_iter().find(|program| !has(program).is_ok_and(|status| status.success()));
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    // Root without capabilities, as in many containers, and kernels without some features do not suffice.
    let may = || {
        Command::new("unshare")
            .args(["-n", "-u", "-m", "sh", "-c", NEEDED])
            .status()
            .is_ok_and(|status| status.success())
    };
    if root && missing.is_none() && may() {
        return true;
    }
    skipped(&format!("no lab here: root {root}, missing {missing:?}; its refusal is tested in its place"));
    let output = lockstep(folder, &["lab", "up", "three.toml", "--name", "refused"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    match (root, missing) {
        (false, _) => assert!(said.contains("run it as root"), "{said}"),
        (true, Some(program)) => assert!(said.contains(program) && said.contains("is not installed"), "{said}"),
        (true, None) => (),
    }
    false
}

/// A lab that is removed at the end of its test.
struct Up<'a>(&'a PathBuf, String);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        lockstep(self.0, &["lab", "down", &self.1]);
    }
}

fn cluster_folder(name: &str) -> PathBuf {
    let folder = folder(name);
    std::fs::write(folder.join("three.toml"), CLUSTER).expect("a file");
    folder
}

/// A name unique to this test and run.
fn lab_name(what: &str) -> String {
    format!("{what}-{}", std::process::id())
}

/// Runs a shell command on each of the lab's hosts.
fn on_each(folder: &PathBuf, lab: &str, line: &str) -> Output {
    lockstep(folder, &["lab", "run", lab, "--each", "--", "bash", "-c", line])
}

/// Everything in the system that a lab of this name may leave.
fn left(lab: &str) -> Vec<String> {
    let listed = |folder: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name == lab || name.starts_with(&format!("lockstep.{lab}")))
            .map(|name| format!("{folder}/{name}"))
            .collect::<Vec<_>>()
    };
    ["/run/netns", "/etc/netns", "/run/lockstep-lab"].into_iter().flat_map(listed).collect()
}

#[test]
fn a_lab_matches_its_file_and_is_removed_completely() {
    let folder = cluster_folder("lab");
    if !labs_work(&folder) {
        return;
    }
    let (one, two) = (lab_name("one"), lab_name("two"));
    let outside = || {
        let listed = Command::new("sh").args(["-c", &format!("{SBIN}; ip -o link")]).output().expect("ip");
        let names = String::from_utf8(listed.stdout).expect("UTF-8");
        names.lines().map(|line| line.split_whitespace().nth(1).map(str::to_owned)).collect::<Vec<_>>()
    };
    let links = outside();
    let _one = Up(&folder, one.clone());
    let shown = stdout(&folder, &["lab", "up", "three.toml", "--name", &one]);
    // 100 Mbit/s x 1448 / 1538 of payload; nothing is visible outside.
    assert!(
        shown.contains("94.15") && shown.contains("latency is this kernel's own") && shown.contains("transmit_queue"),
        "{shown}"
    );
    assert_eq!(outside(), links);

    let names = on_each(&folder, &one, "uname -n");
    assert_eq!(
        String::from_utf8_lossy(&names.stdout).lines().collect::<std::collections::BTreeSet<_>>(),
        ["node0: node0", "node1: node1", "node2: node2"].into()
    );
    // A host that is reached refuses a port without a listener; an unreachable one does not.
    let reached = on_each(
        &folder,
        &one,
        "for host in node0 node1 node2; do (echo >/dev/tcp/$host/9) 2>&1 | grep -q refused && echo reached; done",
    );
    assert_eq!(String::from_utf8_lossy(&reached.stdout).matches(": reached").count(), 9, "{reached:?}");

    let _two = Up(&folder, two.clone());
    stdout(&folder, &["lab", "up", "three.toml", "--name", &two]);
    let again = lockstep(&folder, &["lab", "up", "three.toml", "--name", &two]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("is up already"));
    let address = stdout(&folder, &["lab", "list", "--format", "csv"]);
    let address = address
        .lines()
        .find(|line| line.starts_with(&one))
        .and_then(|line| line.split(',').find(|cell| cell.starts_with("10.")))
        .expect("a row");
    let apart =
        on_each(&folder, &two, &format!("(echo >/dev/tcp/{address}/9) 2>&1 | grep -q unreachable && echo apart"));
    assert_eq!(String::from_utf8_lossy(&apart.stdout).matches(": apart").count(), 3, "{apart:?}");

    assert_eq!(on_each(&folder, &one, "exit 7").status.code(), Some(7));
    let unknown = lockstep(&folder, &["lab", "run", &format!("{one}x"), "--each", "--", "true"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains(&format!("did you mean {one}")), "{unknown:?}");

    // Processes still running inside are ended.
    let binary = env!("CARGO_BIN_EXE_lockstep");
    let mut sleeping =
        Command::new(binary).args(["lab", "run", &one, "--each", "--", "sleep", "1000"]).spawn().expect("it runs");
    for lab in [&one, &two] {
        stdout(&folder, &["lab", "down", lab]);
        assert_eq!(left(lab), Vec::<String>::new());
    }
    assert!(!sleeping.wait().expect("it ends").success());
    assert_eq!(lockstep(&folder, &["lab", "down", &one]).status.code(), Some(2));
}

/// Processes whose environment has this text.
fn marked(mark: &str) -> usize {
    let environment = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("environ")).unwrap_or_default();
    let all = std::fs::read_dir("/proc").expect("/proc").flatten().map(environment);
    all.filter(|variables| variables.windows(mark.len()).any(|part| part == mark.as_bytes())).count()
}

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whichever signal ends `lab run`, also SIGKILL, nothing of its command stays on the hosts, also what ignores signals or
/// has left its group; other commands in the lab continue.
#[test]
fn a_command_on_hosts_ends_with_lab_run() {
    let folder = cluster_folder("lab-signals");
    if !labs_work(&folder) {
        return;
    }
    let lab = lab_name("signals");
    let _up = Up(&folder, lab.clone());
    stdout(&folder, &["lab", "up", "three.toml", "--name", &lab]);
    let start = |mark: &str, each: &[&str], line: &str| {
        let words = [&["lab", "run", &lab], each, &["--", "bash", "-c", line]].concat();
        // A caller such as nohup may ignore signals, which a command then ignores too.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_lockstep")]);
        command.args(words).env("OMPI_MCA_x", mark).env("LOCKSTEP_TEST_MARK", mark).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().expect("it runs")
    };
    let other = format!("other-{lab}");
    let mut goes_on = start(&other, &["--each", "--hosts", "1"], "sleep 1000");
    wait_for("the other command starts", || marked(&other) >= 3);
    let has_mpirun = Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_ok();
    let commands = [
        (&["--each"][..], "sleep 1000 & sleep 1000"),
        (&["--each"], "trap '' TERM INT HUP; setsid sleep 1000 & while true; do sleep 1; done"),
        (&["--hosts", "2"], "setsid sleep 1000 & sleep 1000"),
    ];
    for (index, (each, line)) in commands.into_iter().enumerate().filter(|(_, (each, _))| has_mpirun || each.len() == 1)
    {
        for (signal, code) in [("-TERM", Some(143)), ("-HUP", Some(129)), ("-INT", Some(130)), ("-KILL", None)] {
            let mark = format!("job{index}{signal}-{lab}");
            let mut job = start(&mark, each, line);
            wait_for("the command starts on the hosts", || marked(&mark) >= 6);
            let sent = Command::new("kill").args([signal, &job.id().to_string()]).status();
            assert!(sent.is_ok_and(|status| status.success()));
            assert_eq!(job.wait().expect("it ends").code(), code, "{line} {signal}");
            if code.is_none() {
                // It cannot wait for them itself.
                wait_for("another process ends its command", || marked(&mark) == 0);
            }
            assert_eq!(marked(&mark), 0, "{line} {signal}");
        }
    }
    assert!(goes_on.try_wait().expect("a process").is_none() && marked(&other) >= 3);
    goes_on.kill().expect("a process");
    goes_on.wait().expect("it ends");
}

#[cfg(feature = "mpi")]
#[test]
fn the_paths_between_hosts_are_measured_and_compared_with_the_file() {
    let folder = cluster_folder("lab-links");
    let alone = lockstep(&folder, &["exec", "links", "--cluster", "three.toml"]);
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
    assert!(String::from_utf8_lossy(&alone.stderr).contains("needs two hosts or more"), "{alone:?}");
    if !labs_work(&folder) {
        return;
    }
    let name = lab_name("links");
    let _up = Up(&folder, name.clone());
    stdout(&folder, &["lab", "up", "three.toml", "--name", &name]);
    let links = [env!("CARGO_BIN_EXE_lockstep"), "exec", "links", "--cluster", "three.toml", "--format", "json"];
    let shown = stdout(&folder, &[&["lab", "run", &name, "--hosts", "2", "--"], &links[..]].concat());
    let json: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    let ends: Vec<_> = rows.iter().map(|row| (row["from"].as_str().unwrap(), row["to"].as_str().unwrap())).collect();
    assert_eq!(ends, [("node0", "node1"), ("node1", "node0")]);
    for row in rows {
        // The shaper lets no more through, but for what catches up after a pause.
        let (rate, payload) = (row["rate_Mbitps"].as_f64().unwrap(), row["predicted_rate_Mbitps"].as_f64().unwrap());
        assert!(rate > 0.0 && rate < 1.2 * payload && row["links"] == 2, "{row}");
    }
}

#[test]
fn a_cut_link_carries_nothing_until_it_is_healed() {
    let folder = cluster_folder("lab-cut");
    if !labs_work(&folder) {
        return;
    }
    let lab = lab_name("cut");
    let _up = Up(&folder, lab.clone());
    stdout(&folder, &["lab", "up", "three.toml", "--name", &lab]);
    let reach = || {
        on_each(
            &folder,
            &lab,
            "[ $(uname -n) != node1 ] && timeout 5 bash -c 'echo >/dev/tcp/node1/9' 2>&1 | grep -q refused && echo reached",
        )
        .stdout
    };
    let refused = |output: Vec<u8>| String::from_utf8_lossy(&output).matches(": reached").count();
    assert_eq!(refused(reach()), 2);
    stdout(&folder, &["lab", "cut", &lab, "node1"]);
    assert!(stdout(&folder, &["lab", "list"]).contains(": cut"));
    assert_eq!(refused(reach()), 0);
    stdout(&folder, &["lab", "heal", &lab, "node1"]);
    assert_eq!(refused(reach()), 2);
    stdout(&folder, &["lab", "slow", &lab, "node1-switch", "1Mbit/s"]);
    let wrong = lockstep(&folder, &["lab", "slow", &lab, "node1", "1Gbit/s"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("does not slow the link"));
    let wrong = lockstep(&folder, &["lab", "cut", &lab, "nod1"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("did you mean node1"));
}

#[test]
fn a_killed_lab_up_is_found_and_taken_down() {
    let folder = cluster_folder("lab-killed");
    if !labs_work(&folder) {
        return;
    }
    let lab = lab_name("kill");
    let _up = Up(&folder, lab.clone());
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    let mut child = child
        .args(["lab", "up", "three.toml", "--name", &lab])
        .current_dir(&folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let began = Instant::now();
    let first = format!("/run/netns/lockstep.{lab}");
    while !Path::new(&first).exists() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("a process");
    child.wait().expect("it ends");
    // The step in progress ends by itself.
    std::thread::sleep(Duration::from_millis(500));
    let listed = stdout(&folder, &["lab", "list"]);
    assert!(listed.contains(&format!("lockstep lab down {lab}")), "{listed}");
    let again = lockstep(&folder, &["lab", "up", "three.toml", "--name", &lab]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("is a leftover"), "{again:?}");
    stdout(&folder, &["lab", "down", &lab]);
    assert_eq!(left(&lab), Vec::<String>::new());
}
