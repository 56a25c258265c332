//! Start and end of the mount and of the daemon.

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fuser::{Config, Filesystem, INodeNo, ReplyStatfs, Request, Session, SessionACL};
use rustix::process::Signal;

use crate::fake::Fake;
use crate::handover;
use crate::lab::{Lab, SOON, eventually};
use crate::samples::interface;

#[test]
fn the_daemon_may_come_and_go() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let fs = lab.mount();
    assert_eq!(fs.list("."), ["debug", "infiniband"]);
    assert_eq!(fs.read_error("ib0/mode"), libc::ENOENT);
    let fake = Fake::start(&lab.socket(), vec![interface("ib0", 0x48)]);
    assert_eq!(fs.list("."), ["debug", "infiniband", "ib0"]);
    let mode = File::open(fs.path("ib0/mode")).unwrap();
    drop(fake);
    assert_eq!(fs.list("."), ["debug", "infiniband"]);
    let gone = std::io::read_to_string(&mode).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
    let _fake = Fake::start(&lab.socket(), vec![interface("ib0", 0x48)]);
    assert_eq!(fs.read("ib0/mode"), "datagram\n");
    assert_eq!(std::io::read_to_string(&mode).unwrap(), "datagram\n");
}

#[test]
fn a_daemon_that_hangs_does_not_hang_its_readers() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let fs = lab.mount();
    // The fake accepts connections up to its backlog but does not answer.
    let _listener = UnixListener::bind(lab.socket()).unwrap();
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let path = fs.path("ib0/mode");
            std::thread::spawn(move || std::fs::read_to_string(path).unwrap_err())
        })
        .collect();
    for reader in readers {
        let error = reader.join().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
    }
}

#[test]
fn umount_ends_it() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let mut fs = lab.mount();
    let done = Command::new("umount").arg(lab.root()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(fs.await_end().success());
}

#[test]
fn a_signal_unmounts_it_even_while_it_is_in_use() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let _fake = Fake::start(&lab.socket(), vec![interface("ib0", 0x48)]);
    for signal in [Signal::TERM, Signal::INT] {
        let mut fs = lab.mount();
        let open = File::open(fs.path("ib0/mode")).unwrap();
        fs.signal(signal);
        assert!(fs.await_end().success());
        assert!(!fs.is_mounted());
        // It fails with an error instead of waiting forever.
        let error = std::io::read_to_string(open).unwrap_err().raw_os_error();
        assert!(
            matches!(error, Some(libc::ENOTCONN | libc::ECONNABORTED)),
            "{error:?}"
        );
    }
}

#[test]
fn a_stale_mount_is_removed_and_a_live_one_is_left_alone() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let mut killed = lab.mount();
    killed.signal(Signal::KILL);
    killed.await_end();
    assert!(killed.is_mounted());
    let error = std::fs::read_dir(lab.root()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));

    let _fake = Fake::start(&lab.socket(), vec![interface("ib0", 0x48)]);
    let mut fs = lab.mount();
    assert_eq!(fs.read("ib0/mode"), "datagram\n");
    let second = lab.refused(&lab.root());
    assert_eq!(second.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        complaint.contains("another ibtap-fs serves it"),
        "{complaint}"
    );
    assert_eq!(fs.read("ib0/mode"), "datagram\n");
    fs.signal(Signal::TERM);
    assert!(fs.await_end().success());
    assert!(!fs.is_mounted(), "no other mount is below it");
    let listed = std::fs::read_dir(lab.root()).unwrap();
    assert_eq!(listed.count(), 0);
}

/// As systemd/ibtap-fs.service starts it.
#[test]
fn a_program_without_the_right_to_mount_serves_a_mount_that_is_handed_over() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let early = lab.give();
    assert_eq!(early.status.code(), Some(2));
    let complaint = String::from_utf8_lossy(&early.stderr).into_owned();
    assert!(complaint.contains("start ibtap-fs --take"), "{complaint}");

    let _fake = Fake::start(&lab.socket(), vec![interface("ib0", 0x48)]);
    let mut fs = lab.taker();
    assert!(!fs.is_mounted(), "also the early giver left nothing");
    let given = lab.give();
    assert!(given.status.success(), "{given:?}");
    assert_eq!(fs.read("ib0/mode"), "datagram\n");
    assert_eq!(fs.write("ib0/create_child", "0x8001\n"), Ok(()));
    let second = lab.give();
    assert_eq!(second.status.code(), Some(1), "it is served: {second:?}");
    assert_eq!(fs.read("ib0/mode"), "datagram\n");

    // A killed one leaves a stale mount, which the next mount replaces.
    fs.signal(Signal::KILL);
    fs.await_end();
    assert!(fs.is_mounted());
    let mut next = lab.taker();
    let given = lab.give();
    assert!(given.status.success(), "{given:?}");
    assert_eq!(next.read("ib0/mode"), "datagram\n");
    let done = Command::new("umount").arg(lab.root()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(next.await_end().success());
}

#[test]
fn one_that_is_stopped_is_not_waited_for() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let stopped = lab.mount();
    stopped.signal(Signal::STOP);
    let second = lab.refused(&lab.root());
    stopped.signal(Signal::CONT);
    assert_eq!(second.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(complaint.contains("does not answer"), "{complaint}");
    eventually("an answer", || {
        stopped
            .list(".")
            .contains(&"debug".to_owned())
            .then_some(())
    });
}

/// Reads requests and does not answer; then no signal ends the process that waits for the answer.
struct Silent(mpsc::Sender<ReplyStatfs>);

impl Filesystem for Silent {
    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        self.0.send(reply).unwrap();
    }
}

#[test]
fn one_that_reads_requests_and_is_silent_is_not_waited_for() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let (sender, requests) = mpsc::channel();
    let listener = handover::listen(&lab.handover()).unwrap();
    let silent = std::thread::spawn(move || {
        let (device, giver) = handover::take(&listener).unwrap();
        let silent = Silent(sender);
        let session = Session::from_fd(silent, device, SessionACL::All, Config::default()).unwrap();
        handover::confirm(giver).unwrap();
        session.run().unwrap();
    });
    let given = lab.give();
    assert!(given.status.success(), "{given:?}");
    let mut second = lab
        .command(&lab.root())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let request = requests.recv_timeout(SOON).unwrap();
    let end = Instant::now() + SOON;
    let status = loop {
        match second.try_wait().unwrap() {
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            status => break status,
        }
    };
    drop(request);
    let done = Command::new("umount").arg(lab.root()).output().unwrap();
    silent.join().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    let complaint = std::io::read_to_string(second.stderr.take().unwrap()).unwrap();
    assert!(complaint.contains("does not answer"), "{complaint}");
}

#[test]
fn a_wrong_mount_point_is_reported_in_a_sentence() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let file = lab.socket().with_file_name("file");
    File::create(&file).unwrap();
    let missing = lab.root().join("missing");
    for (mountpoint, why) in [
        (&missing, "No such file or directory"),
        (&file, "not a directory"),
    ] {
        let done = lab.refused(mountpoint);
        let complaint = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains(why), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
}

#[test]
fn without_rights_the_error_names_what_is_needed() {
    let Some(lab) = Lab::new() else {
        return;
    };
    let with = |words: &[&str]| {
        let done = Command::new("setpriv")
            .args(words)
            .arg(env!("CARGO_BIN_EXE_ibtap-fs"))
            .arg(lab.root())
            .output()
            .unwrap();
        (
            done.status.code(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    let (status, complaint) = with(&["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
    assert_eq!(status, Some(2), "{complaint}");
    assert!(complaint.contains("CAP_SYS_ADMIN"), "{complaint}");
}
