//! Effects of writes, and permissions.

use std::os::unix::fs::PermissionsExt;
use std::thread;

use crate::fake::Fake;
use crate::lab::{Lab, Mounted};
use crate::samples::{child, interface};

fn parent() -> Option<(Lab, Fake, Mounted)> {
    let lab = Lab::new()?;
    let fake = Fake::start(&lab.socket(), vec![interface("ib0", 0x48)]);
    let mounted = lab.mount();
    Some((lab, fake, mounted))
}

#[test]
fn children_come_and_go_by_writing() {
    let Some((_lab, _fake, fs)) = parent() else {
        return;
    };
    for (text, name) in [
        ("0x8001\n", "ib0.8001"),
        ("32770\n", "ib0.8002"),
        ("0100003\n", "ib0.8003"),
        (" 4 and more\n", "ib0.8004"),
    ] {
        assert_eq!(fs.write("ib0/create_child", text), Ok(()), "{text:?}");
        assert!(fs.list(".").contains(&name.to_owned()), "{name}");
        assert_eq!(fs.read(&format!("{name}/parent")), "ib0\n");
    }
    let done = fs.shell(
        &["env"],
        "echo 0x8005 >>\"$M/ib0/create_child\" && cat \"$M/ib0.8005/pkey\"",
    );
    assert_eq!(done.stdout, b"0x8005\n");
    for pkey in 0x8001..=0x8005 {
        assert_eq!(
            fs.write("ib0/delete_child", &format!("{pkey:#x}\n")),
            Ok(())
        );
    }
    assert_eq!(fs.list("."), ["debug", "infiniband", "ib0"]);
}

#[test]
fn what_the_kernel_refuses_has_the_kernels_number() {
    let Some((_lab, fake, fs)) = parent() else {
        return;
    };
    fake.interfaces()
        .push(child("ib0.8001", 0x49, "ib0", 0x8001));
    for (file, text, errno) in [
        ("ib0/create_child", "0\n", libc::EINVAL),
        ("ib0/create_child", "-1\n", libc::EINVAL),
        ("ib0/create_child", "0x8000\n", libc::EINVAL),
        ("ib0/create_child", "0x10000\n", libc::EINVAL),
        // The kernel truncates this number to 0x8002.
        ("ib0/create_child", "0x100008002\n", libc::EINVAL),
        (
            "ib0/create_child",
            "99999999999999999999999\n",
            libc::EINVAL,
        ),
        ("ib0/create_child", "ib0.8001\n", libc::EINVAL),
        ("ib0/create_child", "\n", libc::EINVAL),
        ("ib0/create_child", "0x8001\n", libc::ENOTUNIQ),
        ("ib0/create_child", "1\n", libc::ENOTUNIQ),
        ("ib0/create_child", "0xffff\n", libc::ENOTUNIQ),
        ("ib0/create_child", "0x8666\n", libc::EBUSY),
        ("ib0/delete_child", "0x8002\n", libc::ENODEV),
        ("ib0/delete_child", "no\n", libc::EINVAL),
        ("ib0.8001/create_child", "0x8002\n", libc::EACCES),
        ("ib9/create_child", "0x8002\n", libc::ENOENT),
        ("ib0.8001/mode", "connected", libc::EINVAL),
        ("ib0.8001/mode", "reliable\n", libc::EINVAL),
        ("ib0/mode", "connected\n", libc::EINVAL),
        ("ib0/mtu", "2045\n", libc::EINVAL),
        ("ib0/mtu", "2044 \n", libc::EINVAL),
        ("ib0/mtu", "-1\n", libc::EINVAL),
        ("ib0/pkey", "0x8001\n", libc::EACCES),
        ("ib0/statistics/rx_bytes", "0\n", libc::EACCES),
        ("debug/ib0_mcg", "0\n", libc::EACCES),
        ("new", "0\n", libc::EACCES),
    ] {
        assert_eq!(fs.write(file, text), Err(errno), "{text:?} to {file}");
    }
    assert_eq!(fs.list("."), ["debug", "infiniband", "ib0", "ib0.8001"]);
    // (The shell's echo does not print the error number.)
    let done = fs.shell(
        &["env", "LC_ALL=C"],
        "/bin/echo 0x8001 >\"$M/ib0/create_child\"",
    );
    let complaint = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success());
    assert!(complaint.contains("not unique"), "{complaint}");
}

#[test]
fn settings_are_written_and_read_again() {
    let Some((_lab, fake, fs)) = parent() else {
        return;
    };
    fake.interfaces()
        .push(child("ib0.8001", 0x49, "ib0", 0x8001));
    for (file, text, read) in [
        ("ib0.8001/mode", "connected\n", "connected\n"),
        ("ib0.8001/mode", "datagram\n", "datagram\n"),
        ("ib0/mtu", "1500\n", "1500\n"),
        ("ib0/mtu", "0x7fc", "2044\n"),
        ("ib0/umcast", "1\n", "1\n"),
        ("ib0/umcast", "7\n", "1\n"),
        ("ib0/umcast", "0\n", "0\n"),
    ] {
        assert_eq!(fs.write(file, text), Ok(()), "{text:?} to {file}");
        assert_eq!(fs.read(file), read, "{text:?} to {file}");
    }
}

#[test]
fn all_may_read_and_only_who_administers_may_write() {
    let Some((_lab, _fake, fs)) = parent() else {
        return;
    };
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let done = fs.shell(&nobody, "cat \"$M/ib0/pkey\"");
    assert_eq!(done.stdout, b"0xffff\n", "{done:?}");
    // Dumps name all hosts of the fabric; debugfs is for root alone, too.
    for line in [
        "ls \"$M/debug\"",
        "cat \"$M/debug/ib0_path\"",
        "cat \"$M/debug/ib0_mcg\"",
    ] {
        let done = fs.shell(&nobody, line);
        assert!(!done.status.success() && done.stdout.is_empty(), "{done:?}");
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(text.contains("Permission denied"), "{text}");
    }
    let python = |user: &[&str]| {
        let script = "import os\ntry:\n    f = os.open(os.environ['M'] + '/ib0/create_child', \
                      os.O_WRONLY)\n    os.write(f, b'0x8001\\n')\n    print('made')\n\
                      except OSError as e:\n    print(e.errno)";
        let done = fs.shell(user, &format!("exec python3 -c \"{script}\""));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    };
    assert_eq!(python(&nobody), libc::EACCES.to_string());
    // Root without CAP_NET_ADMIN.
    let powerless = [
        "setpriv",
        "--bounding-set=-net_admin",
        "--inh-caps=-net_admin",
    ];
    assert_eq!(python(&powerless), libc::EPERM.to_string());
    // Root with all capabilities in its own user namespace.
    let contained = ["unshare", "--user", "--map-root-user"];
    assert_eq!(python(&contained), libc::EPERM.to_string());
    assert_eq!(fs.list("."), ["debug", "infiniband", "ib0"]);
    assert_eq!(python(&["env"]), "made");
    assert_eq!(python(&["unshare", "--net"]), libc::ENOTUNIQ.to_string());
}

#[test]
fn nothing_else_can_be_changed() {
    let Some((_lab, _fake, fs)) = parent() else {
        return;
    };
    let errno = |done: std::io::Result<()>| done.unwrap_err().raw_os_error();
    let file = fs.path("ib0/mode");
    assert_eq!(errno(std::fs::remove_file(&file)), Some(libc::EPERM));
    assert_eq!(
        errno(std::fs::remove_dir(fs.path("ib0"))),
        Some(libc::EPERM)
    );
    assert_eq!(
        errno(std::fs::create_dir(fs.path("ib1"))),
        Some(libc::EPERM)
    );
    assert_eq!(
        errno(std::fs::rename(&file, fs.path("ib0/x"))),
        Some(libc::EPERM)
    );
    let modes = std::fs::Permissions::from_mode(0o666);
    assert_eq!(
        errno(std::fs::set_permissions(&file, modes)),
        Some(libc::EPERM)
    );
    let link = std::os::unix::fs::symlink("x", fs.path("y"));
    assert_eq!(errno(link), Some(libc::EPERM));
}

#[test]
fn many_writers_at_once_make_each_child_once() {
    let Some((_lab, fake, fs)) = parent() else {
        return;
    };
    let made = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    (0x8100..0x8120)
                        .filter(|pkey| {
                            let done = fs.write("ib0/create_child", &format!("{pkey:#x}\n"));
                            assert!(matches!(done, Ok(()) | Err(libc::ENOTUNIQ)), "{done:?}");
                            done.is_ok()
                        })
                        .count()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<usize>()
    });
    assert_eq!(made, 0x20);
    assert_eq!(fake.interfaces().len(), 1 + 0x20);
}
