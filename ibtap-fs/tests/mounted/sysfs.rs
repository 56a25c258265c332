//! Files and their contents.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Instant;

use crate::fake::Fake;
use crate::lab::{Lab, Mounted, eventually};
use crate::samples::{child, interface};

/// A parent and its child.
fn family() -> Option<(Lab, Fake, Mounted)> {
    let lab = Lab::new()?;
    let interfaces = vec![
        interface("ib0", 0x48),
        child("ib0.8001", 0x49, "ib0", 0x8001),
    ];
    let fake = Fake::start(&lab.socket(), interfaces);
    let mounted = lab.mount();
    Some((lab, fake, mounted))
}

#[test]
fn the_tree_is_as_sysfs_and_debugfs_have_it() {
    let Some((_lab, _fake, fs)) = family() else {
        return;
    };
    assert_eq!(fs.list("."), ["debug", "infiniband", "ib0", "ib0.8001"]);
    let parent = [
        "addr_len",
        "address",
        "broadcast",
        "carrier",
        "create_child",
        "delete_child",
        "dev_id",
        "dev_port",
        "ifindex",
        "mode",
        "mtu",
        "pkey",
        "type",
        "umcast",
        "statistics",
    ];
    assert_eq!(fs.list("ib0"), parent);
    let child = [
        "addr_len",
        "address",
        "broadcast",
        "carrier",
        "dev_id",
        "dev_port",
        "ifindex",
        "mode",
        "mtu",
        "parent",
        "pkey",
        "type",
        "umcast",
        "statistics",
    ];
    assert_eq!(fs.list("ib0.8001"), child);
    assert_eq!(
        fs.list("debug"),
        ["ib0_mcg", "ib0_path", "ib0.8001_mcg", "ib0.8001_path"]
    );
    for (file, mode) in [
        ("ib0/mode", 0o644),
        ("ib0/create_child", 0o200),
        ("ib0/pkey", 0o444),
        ("ib0/statistics/rx_packets", 0o444),
    ] {
        let metadata = std::fs::metadata(fs.path(file)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{file}");
        assert_eq!(
            (metadata.uid(), metadata.gid(), metadata.size()),
            (0, 0, 4096)
        );
    }
}

#[test]
fn files_read_as_the_kernels() {
    let Some((_lab, _fake, fs)) = family() else {
        return;
    };
    assert_eq!(fs.read("ib0/mode"), "datagram\n");
    assert_eq!(fs.read("ib0/pkey"), "0xffff\n");
    assert_eq!(fs.read("ib0.8001/pkey"), "0x8001\n");
    assert_eq!(fs.read("ib0.8001/parent"), "ib0\n");
    assert_eq!(fs.read("ib0/type"), "32\n");
    let gid = "fe:80:00:00:00:00:00:00:00:02:c9:03:00:e7:7e:12";
    assert_eq!(fs.read("ib0/address"), format!("00:00:00:48:{gid}\n"));
    let counters = [
        ("rx_packets", 1),
        ("tx_packets", u64::MAX),
        ("rx_bytes", 3),
        ("tx_bytes", 4),
        ("tx_errors", 5),
        ("rx_dropped", 6),
        ("tx_dropped", 7),
        ("multicast", 8),
    ];
    assert_eq!(fs.list("ib0/statistics").len(), counters.len());
    for (name, value) in counters {
        assert_eq!(
            fs.read(&format!("ib0/statistics/{name}")),
            format!("{value}\n")
        );
    }
    let group = "GID: ff12:401b:ffff:0:0:0:ffff:ffff\n  created: 4294892296\n  queuelen:         0\n  \
                 complete:       yes\n  send_only:       no\n\n";
    // More than a page: debugfs does not truncate dumps.
    assert_eq!(fs.read("debug/ib0_mcg"), group.repeat(100));
    assert_eq!(
        fs.read("debug/ib0_path"),
        "GID: fe80:0:0:0:2:c903:e7:7e12\n  complete:    yes\n  DLID:     0x0012\n  \
         SL:            0\n  rate:       10.0 Gb/sec\n\n"
    );
    assert_eq!(fs.read_error("ib0/create_child"), libc::EACCES);
    assert_eq!(fs.read_error("ib0/parent"), libc::ENOENT);
    assert_eq!(fs.read_error("ib9/mode"), libc::ENOENT);
    assert_eq!(fs.read_error("debug/ib9_mcg"), libc::ENOENT);
}

#[test]
fn programs_read_in_pieces_and_from_anywhere() {
    let Some((_lab, fake, fs)) = family() else {
        return;
    };
    let done = fs.shell(
        &["env"],
        "cd \"$M\" && head -c1 ib0/pkey && cat ib0/mode ib0/mode && cp ib0/pkey /dev/stdout && \
         dd if=ib0/pkey bs=1 status=none && tail -n1 ib0/mode && grep -l datagram ib0/mode && \
         cat ib0/mode | wc -c && wc -c <debug/ib0_mcg",
    );
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        "0datagram\ndatagram\n0xffff\n0xffff\ndatagram\nib0/mode\n9\n12500\n"
    );

    let mut file = File::open(fs.path("ib0/mtu")).unwrap();
    let mut half = [0; 2];
    file.read_exact(&mut half).unwrap();
    fake.interfaces()[0].mtu = 1500;
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!((&half, rest.as_str()), (b"20", "44\n"), "one snapshot");
    file.seek(SeekFrom::Start(0)).unwrap();
    rest.clear();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "1500\n", "a new snapshot from the beginning");
}

#[test]
fn directories_follow_the_interfaces() {
    let Some((_lab, fake, fs)) = family() else {
        return;
    };
    let mut mode = File::open(fs.path("ib0.8001/mode")).unwrap();
    let directory = File::open(fs.path("ib0.8001")).unwrap();
    fake.interfaces()[1].name = "storage0".to_owned();
    assert_eq!(fs.list("."), ["debug", "infiniband", "ib0", "storage0"]);
    assert_eq!(fs.read_error("ib0.8001/mode"), libc::ENOENT);
    assert_eq!(fs.read("storage0/pkey"), "0x8001\n");

    // Another interface gets the name. Open files stay with the former interface.
    let stranger = child("ib0.8001", 0x77, "ib0", 0x8002);
    fake.interfaces().push(stranger);
    assert_eq!(fs.read("ib0.8001/pkey"), "0x8002\n");
    fake.interfaces()[1].mode = control::api::Mode::Connected;
    let mut text = String::new();
    mode.read_to_string(&mut text).unwrap();
    assert_eq!(text, "connected\n");
    let here = rustix::fs::openat(
        &directory,
        "pkey",
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    );
    let mut text = String::new();
    File::from(here.unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, "0x8001\n");

    fake.interfaces().remove(1);
    assert_eq!(fs.list("."), ["debug", "infiniband", "ib0", "ib0.8001"]);
    mode.seek(SeekFrom::Start(0)).unwrap();
    let gone = mode.read(&mut [0; 9]).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
}

#[test]
fn interfaces_of_one_name_are_distinguished_by_their_namespaces() {
    let Some((_lab, fake, fs)) = family() else {
        return;
    };
    let mut blue = child("ib0", 0x77, "ib0", 0x8002);
    blue.netns = Some("blue".to_owned());
    let mut alone = child("ib1", 0x78, "ib0", 0x8003);
    alone.netns = Some("blue".to_owned());
    fake.interfaces().extend([blue, alone]);
    assert_eq!(
        fs.list("."),
        ["debug", "infiniband", "ib0", "ib0.8001", "blue:ib0", "ib1"]
    );
    assert_eq!(fs.read("ib0/pkey"), "0xffff\n");
    assert_eq!(fs.read("blue:ib0/pkey"), "0x8002\n");
    assert_eq!(fs.read("ib1/pkey"), "0x8003\n");
    assert_eq!(
        fs.read("blue:ib1/pkey"),
        "0x8003\n",
        "the namespace makes it unambiguous"
    );
    assert!(fs.read("debug/blue:ib0_mcg").starts_with("GID: "));
    assert_eq!(fs.read_error("red:ib0/pkey"), libc::ENOENT);
}

#[test]
fn a_listing_of_many_is_whole() {
    let Some((_lab, fake, fs)) = family() else {
        return;
    };
    let children = (0x8100..0x8300).map(|pkey| {
        let name = format!("ib0.{pkey:04x}");
        child(&name, u32::from(pkey), "ib0", pkey)
    });
    fake.interfaces().extend(children);
    let mut listed = fs.list(".");
    assert_eq!(listed.len(), 4 + 0x200);
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), 4 + 0x200);
    eventually("a file of the last interface", || {
        fs.try_read("ib0.82ff/pkey").ok()
    });
}

/// Any user reads files in a loop. The daemon answers a bounded number of requests, whatever the number of
/// reads: at first one for each read and each path, then ten a second for all interfaces and ten for all
/// counters.
#[test]
fn readers_in_a_loop_do_not_keep_the_daemon_busy() {
    const READS: usize = 2000;
    let Some((_lab, fake, fs)) = family() else {
        return;
    };
    for file in ["ib0/statistics/rx_packets", "ib0/mode", "ib0.8001/mtu"] {
        let before = fake.asked();
        let start = Instant::now();
        for _ in 0..READS {
            fs.read(file);
        }
        let tenths = start.elapsed().as_millis() as usize / 100 + 1;
        let asked = fake.asked() - before;
        let bound = 200 + tenths * (10 + 1 + 1);
        assert!(asked <= bound, "{asked} requests, at most {bound}: {file}");
        assert!(
            asked < READS,
            "{asked} requests for {READS} reads of {file}"
        );
    }
    // Also for names that do not exist.
    let before = fake.asked();
    for n in 0..READS {
        assert_eq!(fs.read_error(&format!("ib{n}.9/mode")), libc::ENOENT);
    }
    assert!(fake.asked() - before < READS / 2);
    // What a program has written, it reads back.
    for mtu in ["1500\n", "2000\n", "1600\n"] {
        fs.write("ib0/mtu", mtu).unwrap();
        assert_eq!(fs.read("ib0/mtu"), mtu);
    }
}
