//! What a running daemon may do: capabilities, system calls, files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;

use crate::lab::{Lab, SOON, eventually, ibtap};

/// Numbers of capabilities (kernel include/uapi/linux/capability.h).
const NET_BROADCAST: u64 = 1 << 11;
const NET_ADMIN: u64 = 1 << 12;
const IPC_LOCK: u64 = 1 << 14;
const SYS_ADMIN: u64 = 1 << 21;

/// The lines of a status file (proc_pid_status(5)), or why the thread has none.
fn status(path: impl AsRef<Path>) -> std::io::Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(path)?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let pairs = lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    Ok(pairs.collect())
}

/// A set of capabilities in a status file.
fn set(status: &BTreeMap<String, String>, name: &str) -> u64 {
    u64::from_str_radix(&status[name], 16).expect("a set in hexadecimal")
}

/// The status of each thread, by the thread's name. A thread may end meanwhile.
fn threads(pid: u32) -> BTreeMap<String, BTreeMap<String, String>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let of_task = |task: std::io::Result<fs::DirEntry>| {
        let status = match status(task.expect("a thread").path().join("status")) {
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NOENT | Errno::SRCH)) => {
                return None;
            }
            status => status.expect("a thread"),
        };
        Some((status["Name"].clone(), status))
    };
    tasks.filter_map(of_task).collect()
}

/// Before, the daemon of a root user had all 41 capabilities in all threads, and no filter.
#[test]
fn a_running_daemon_has_few_capabilities_and_filters() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let pid = lab.host(0).daemon().pid();
    let control = status(format!("/proc/{pid}/status")).expect("a process");
    let used = NET_ADMIN | NET_BROADCAST | SYS_ADMIN | IPC_LOCK;
    for name in ["CapEff", "CapPrm"] {
        assert_eq!(set(&control, name), used, "{name}");
    }
    for name in ["CapInh", "CapAmb"] {
        assert_eq!(set(&control, name), 0, "{name}");
    }
    // Two more for the time of the start.
    assert_eq!(set(&control, "CapBnd").count_ones(), 6);
    assert_eq!(control["NoNewPrivs"], "1");
    assert_eq!(control["Seccomp"], "2", "a filter");

    let threads = threads(pid);
    let data = &threads["eth0/0"];
    for name in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(set(data, name), 0, "{name} of a data thread");
    }
    let filters = |status: &BTreeMap<String, String>| -> u32 {
        status["Seccomp_filters"].parse().expect("a number")
    };
    // One refuses quietly, one with a log line.
    assert_eq!(filters(data), filters(&control) + 2);
}

#[test]
fn without_the_sandbox_only_capabilities_are_dropped() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let pid = a.start(&["--no-sandbox"]).pid();
    let path = b.file("off.toml");
    let text = "sandbox = false\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
    fs::write(&path, text).expect("written");
    let other = b.start_with(&["--config", path.to_str().expect("ASCII")]);
    for pid in [pid, other.pid()] {
        let control = status(format!("/proc/{pid}/status")).expect("a process");
        assert_eq!(control["Seccomp"], "0");
        assert_eq!(control["NoNewPrivs"], "1");
        assert_eq!(set(&threads(pid)["eth0/0"], "CapEff"), 0);
    }
}

/// Editors and configuration management replace the file. Its directory is what the daemon may read; a link to
/// another directory would let whoever writes the link read any file through the errors of the parser.
#[test]
fn a_replaced_configuration_is_read_and_another_directory_is_not() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let path = host.file("ibtapd.toml");
    let write = |path: &Path, mtu: u32| {
        let text = format!("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nmtu = {mtu}\n");
        fs::write(path, text).expect("written");
    };
    write(&path, 2044);
    host.start_with(&["--config", path.to_str().expect("ASCII")]);
    let new = host.file("new.toml");
    write(&new, 1500);
    fs::rename(&new, &path).expect("renamed");
    let done = host.ibtap("reload");
    assert_eq!((done.code, host.mtu("ib0")), (Some(0), 1500), "{done:?}");

    let elsewhere = tempfile::tempdir().expect("a directory");
    let outside = elsewhere.path().join("outside.toml");
    write(&outside, 1400);
    fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink(&outside, &path).expect("a link");
    let done = host.ibtap("reload");
    assert!(done.err.contains("Permission denied"), "{done:?}");
    assert_eq!(host.mtu("ib0"), 1500);
}

#[test]
fn an_unprivileged_user_with_one_capability_serves_an_interface() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let path = a.file("user.toml");
    let write = |mtu: u32| {
        let text = format!("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nmtu = {mtu}\n");
        fs::write(&path, text).expect("written");
    };
    write(2044);
    let pid = a
        .start_unprivileged(&["--config", path.to_str().expect("ASCII")])
        .pid();
    b.start(&[]);
    for host in [&*a, &*b] {
        host.configure("ib0");
    }
    a.reaches(b);
    let control = status(format!("/proc/{pid}/status")).expect("a process");
    assert!(control["Uid"].starts_with("65534"), "{control:?}");
    assert_eq!(set(&control, "CapPrm"), NET_ADMIN);
    // proc(5): the files of a process without core dumps and tracing belong to root.
    let owner = fs::metadata(format!("/proc/{pid}/environ")).expect("a process");
    assert_eq!(owner.uid(), 0);

    write(1500);
    let done = a.ibtap("reload");
    assert_eq!((done.code, a.mtu("ib0")), (Some(0), 1500), "{done:?}");
    let done = a.ibtap("mode ib0 connected");
    assert_eq!(done.code, Some(0), "{done:?}");
    a.reaches(b);
    a.stop();
    assert!(!a.has_link("ib0") && !a.socket().exists());
}

/// A daemon whose control thread works but whose data threads hang would never be restarted.
#[test]
fn the_watchdog_is_notified_only_while_data_threads_answer() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let service = host.start_service(8, &[]);
    service.await_count("watchdog", 3);
    let tasks = fs::read_dir(format!("/proc/{}/task", service.pid())).expect("a process");
    let data = tasks
        .map(|task| task.expect("a thread").path())
        .find(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim_end() == "eth0/0")
        });
    let data = data.expect("a data thread");
    // Stops one thread only (ptrace(2): PTRACE_SEIZE, PTRACE_INTERRUPT).
    let script = format!(
        "import ctypes, time\n\
         c = ctypes.CDLL(None, use_errno=True)\n\
         t = {}\n\
         assert c.ptrace(0x4206, t, None, None) == 0, ctypes.get_errno()\n\
         assert c.ptrace(0x4207, t, None, None) == 0, ctypes.get_errno()\n\
         time.sleep(60)\n",
        data.file_name().expect("a name").display()
    );
    let file = host.file("stop.py");
    fs::write(&file, script).expect("written");
    let stopped = host.spawn(&format!("python3 {}", file.display()));
    eventually(SOON, "a line about the silent thread", || {
        service
            .log()
            .contains("a data thread of eth0 does not answer")
            .then_some(())
    });
    let before = service.events("watchdog").len();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(service.events("watchdog").len(), before);
    // The thread continues when its tracer ends.
    drop(stopped);
    service.await_count("watchdog", before + 2);
}

/// Each port without a GID takes two seconds.
#[test]
fn the_watchdog_is_notified_during_a_reload() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let one = |name: &str, underlay: &str| {
        format!("[[ipoib]]\nname = {name:?}\nunderlay = {underlay:?}\n")
    };
    let ib0 = one("ib0", "eth0");
    let path = host.write_config(&ib0);
    let service = host.start_service_with(8, &["--config", &path]);
    let added = ["1", "2", "3"].map(|n| {
        host.ok(&format!("ip link add down{n} type veth peer name peer{n}"));
        one(&format!("ib{n}"), &format!("down{n}"))
    });
    host.write_config(&(ib0 + &added.concat()));
    let done = host.ibtap("reload");
    assert!(done.out.contains("down3 is down"), "{done:?}");
    service.await_count("ready", 2);
    let events = service.events("");
    let events = events.iter().skip_while(|event| *event != "reloading");
    let events = events.take_while(|event| *event != "ready");
    let notified = events.filter(|event| *event == "watchdog").count();
    assert!(notified >= 3, "{notified}");
}

/// A monitoring program needs the counters, not the rights to change the host.
#[test]
fn members_of_the_group_only_read_if_the_configuration_says_so() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let path = host.file("read.toml");
    let text = "group_access = \"read\"\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
    fs::write(&path, text).expect("written");
    host.start_with(&["--config", path.to_str().expect("ASCII")]);
    let socket = host.socket();
    let folder = socket.parent().expect("a directory").to_owned();
    host.ok(&format!("chmod 711 {}", folder.display()));
    host.ok(&format!("chgrp 65534 {}", socket.display()));
    let program = host.file("ibtap");
    fs::copy(ibtap(), &program).expect("copied");
    let as_member = |words: &str| {
        host.run(&format!(
            "setpriv --reuid 65533 --regid 65534 --clear-groups {} --socket {} {words}",
            program.display(),
            socket.display()
        ))
    };
    let shown = as_member("--json show");
    assert!(shown.out.contains("\"ib0\""), "{shown:?}");
    let refused = as_member("mode ib0 connected");
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.err.contains("user 65533 may only read"),
        "{refused:?}"
    );
    assert_eq!(host.show("ib0")["mode"], "datagram");

    let done = host.ibtap("mode ib0 connected");
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = host.daemon().log();
    assert!(log.contains("Mode by user 0, process "), "{log}");
    assert!(!log.contains("by user 65533"), "{log}");
}
