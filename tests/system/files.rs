//! The interfaces as files, with a real daemon. The tests of `ibtap-fs` check the files; these tests check
//! that writes take effect and that reads are correct.

use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{Host, LINK_MTU, Lab, Namespace, SOON, eventually, ibtap_fs, sent};

/// The files of a host's daemon. Unmounted when dropped.
struct Files {
    program: Child,
    root: PathBuf,
}

impl Files {
    /// `None`, with a message, without FUSE.
    fn of(host: &Host) -> Option<Files> {
        if std::fs::File::open("/dev/fuse").is_err() {
            kit::skip("mounting needs /dev/fuse");
            return None;
        }
        let root = host.file("files");
        std::fs::create_dir(&root).expect("a directory");
        let program = Command::new("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(ibtap_fs())
            .arg("--socket")
            .arg(host.socket())
            .arg(&root)
            .spawn()
            .expect("util-linux is installed");
        let files = Files { program, root };
        eventually(SOON, "the files", || {
            files.root.join("debug").is_dir().then_some(())
        });
        Some(files)
    }

    /// A whole file.
    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// A whole file, which may be missing.
    fn try_read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    /// The error number of a write, 0 for none.
    fn write(&self, path: &str, text: &str) -> i32 {
        match std::fs::write(self.root.join(path), text) {
            Ok(()) => 0,
            Err(e) => e.raw_os_error().expect("an error number"),
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // It ends by itself only if the test has failed already.
        let _ = kill_process(Pid::from_child(&self.program), Signal::TERM);
        let _ = self.program.wait();
    }
}

#[test]
fn files_say_what_ip_and_ibtap_say() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let Some(files) = Files::of(a) else {
        return;
    };
    let shown = a.show("ib0");
    let address = shown["address"].as_str().expect("20 bytes");
    assert_eq!(files.read("ib0/address"), format!("{address}\n"));
    assert_eq!(files.read("ib0/mtu"), format!("{LINK_MTU}\n"));
    assert_eq!(files.read("ib0/mode"), "datagram\n");
    assert_eq!(files.read("ib0/pkey"), "0xffff\n");
    assert_eq!(files.read("ib0/carrier"), "1\n");
    assert_eq!(
        files.read("ib0/broadcast"),
        "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff\n"
    );
    let groups = files.read("debug/ib0_mcg");
    assert!(
        groups.starts_with("GID: ff12:401b:ffff:0:0:0:ffff:ffff\n"),
        "{groups}"
    );
    let paths = a.ibtap("path ib0").out;
    assert!(paths.contains("GID: fe80:"), "{paths}");
    assert_eq!(files.read("debug/ib0_path"), paths);

    // Its port.
    let port = "infiniband/soft_eth0/ports/1";
    let gid = files.read(&format!("{port}/gids/0"));
    let gid: std::net::Ipv6Addr = gid.trim().parse().expect("a GID");
    assert_eq!(shown["gid"], gid.to_string());
    for (file, contents) in [
        ("state", "4: ACTIVE\n"),
        // A veth has 10 Gb/s.
        ("rate", "10 Gb/sec (1X FDR10)\n"),
        ("pkeys/0", "0xffff\n"),
        ("gid_attrs/ndevs/0", "eth0\n"),
    ] {
        assert_eq!(files.read(&format!("{port}/{file}")), contents, "{file}");
    }

    let counters = [
        "ib0/statistics/rx_packets".to_owned(),
        format!("{port}/counters/port_rcv_packets"),
        format!("{port}/counters/port_xmit_packets"),
    ];
    let read = |file: &String| files.read(file).trim().parse::<u64>().expect("a number");
    let before = counters.each_ref().map(read);
    let output = a.answered(50, &format!("-q -i 0.002 {}", b.v4()));
    let range = 50..sent(&output) as u64 + 30;
    for (file, before) in counters.iter().zip(before) {
        let grown = read(file) - before;
        assert!(range.contains(&grown), "{file}: {grown}");
    }
}

#[test]
fn files_change_mode_and_mtu() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, _) = lab.two();
    let Some(files) = Files::of(a) else {
        return;
    };
    assert_eq!(files.write("ib0/mtu", "1500\n"), 0);
    eventually(SOON, "the MTU", || {
        (a.link("ib0")["mtu"] == 1500).then_some(())
    });
    assert_eq!(files.write("ib0/mtu", "65521\n"), libc::EINVAL);
    assert_eq!(files.write("ib0/mode", "connected"), libc::EINVAL);
    assert_eq!(files.write("ib0/mode", "connected\n"), 0);
    assert_eq!(files.read("ib0/mode"), "connected\n");
    assert_eq!(a.show("ib0")["mode"], "connected");
    assert_eq!(files.write("ib0/umcast", "1\n"), 0);
    assert_eq!(files.read("ib0/umcast"), "1\n");
}

#[test]
fn files_make_children_that_talk() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let Some(files) = Files::of(a) else {
        return;
    };
    assert_eq!(files.write("ib0/create_child", "0x8001\n"), 0);
    assert_eq!(b.ibtap("child add ib0 0x8001").code, Some(0));
    for (host, n) in [(&*a, 1), (&*b, 2)] {
        host.ok("ip link set ib0.8001 up");
        host.ok(&format!("ip addr add 10.77.0.{n}/24 dev ib0.8001"));
    }
    eventually(SOON, "an answer in the partition", || {
        a.pings("10.77.0.2").then_some(())
    });
    assert_eq!(files.read("ib0.8001/pkey"), "0x8001\n");
    assert_eq!(files.read("ib0.8001/parent"), "ib0\n");
    assert!(files.read("debug/ib0.8001_mcg").contains("401b:8001:"));

    for (text, errno) in [
        ("0\n", libc::EINVAL),
        ("0x8000\n", libc::EINVAL),
        ("0x10000\n", libc::EINVAL),
        ("one\n", libc::EINVAL),
        ("1\n", libc::ENOTUNIQ),
        ("0xffff\n", libc::ENOTUNIQ),
    ] {
        assert_eq!(files.write("ib0/create_child", text), errno, "{text:?}");
    }
    assert_eq!(files.write("ib0/delete_child", "0x8002\n"), libc::ENODEV);
    assert_eq!(files.write("ib0/delete_child", "0x8001\n"), 0);
    eventually(SOON, "the child to go", || {
        (a.run("ip link show ib0.8001").code != Some(0)).then_some(())
    });
    assert_eq!(files.try_read("ib0.8001/pkey"), None);
}

#[test]
fn files_follow_a_rename_and_a_restart() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, _) = lab.two();
    let Some(files) = Files::of(a) else {
        return;
    };
    a.ok("ip link set ib0 name storage0");
    eventually(SOON, "the new name", || files.try_read("storage0/mode"));
    assert_eq!(files.try_read("ib0/mode"), None);
    a.stop();
    assert_eq!(files.try_read("storage0/mode"), None);
    a.start(&[]);
    assert_eq!(files.read("ib0/mode"), "datagram\n");
}

#[test]
fn files_are_the_same_in_every_namespace() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, _) = lab.two();
    let Some(files) = Files::of(a) else {
        return;
    };
    let elsewhere = Namespace::create();
    // From a process in that namespace, which sees the mount.
    let file = |path: &str| files.root.join(path).display().to_string();
    let done = Command::new("ip")
        .args(["netns", "exec", elsewhere.name(), "sh", "-c"])
        .arg(format!("echo 0x8001 >{}", file("ib0/create_child")))
        .status();
    assert!(done.expect("iproute2 is installed").success());
    a.ok(&format!("ip link set ib0.8001 netns {}", elsewhere.name()));
    let qualified = format!("{}:ib0.8001/pkey", elsewhere.name());
    eventually(SOON, "the move", || files.try_read(&qualified));
    assert_eq!(files.read("ib0.8001/pkey"), "0x8001\n");

    // Another interface of the same name, in the daemon's namespace.
    a.ok("ip tuntap add dev ib0.8002 mode tap");
    eventually(SOON, "its adoption", || files.try_read("ib0.8002/pkey"));
    a.ok("ip link set ib0.8002 name ib0.8001");
    eventually(SOON, "its name", || {
        (files.read("ib0.8001/pkey") == "0x8002\n").then_some(())
    });
    assert_eq!(files.read(&qualified), "0x8001\n");
    let mut listed: Vec<_> = std::fs::read_dir(&files.root)
        .expect("the root")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    listed.sort();
    let mut expected = vec![
        "debug".into(),
        "infiniband".into(),
        "ib0".into(),
        "ib0.8001".into(),
    ];
    expected.push(format!("{}:ib0.8001", elsewhere.name()));
    expected.sort();
    assert_eq!(listed, expected);
    assert_eq!(files.write("ib0/delete_child", "0x8001\n"), 0);
    assert_eq!(files.try_read(&qualified), None);
    assert_eq!(files.read("ib0.8001/pkey"), "0x8002\n");
}
