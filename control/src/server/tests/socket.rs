//! The socket in the file system.

use super::*;

#[test]
fn the_socket_is_for_its_owner_and_group_and_goes_with_the_server() {
    let rig = Rig::new();
    let path = rig.server.path().to_owned();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o660);
    assert_eq!(mode(path.parent().unwrap()) & 0o700, 0o700);
    let Rig { directory, server } = rig;
    drop(server);
    assert!(!path.exists());
    assert!(directory.path().exists());
}

#[test]
fn a_dead_daemons_socket_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a closed listener leaves its name");
    let server = ControlServer::bind(&path).unwrap();
    assert!(UnixStream::connect(server.path()).is_ok());
}

#[test]
fn a_foreign_socket_is_not_removed_at_the_end() {
    let rig = Rig::new();
    let path = rig.server.path().to_owned();
    std::fs::remove_file(&path).unwrap();
    let _foreign = UnixListener::bind(&path).unwrap();
    drop(rig.server);
    assert!(path.exists());
}

#[test]
fn a_live_daemon_is_not_replaced_but_named() {
    let rig = Rig::new();
    let path = rig.server.path().to_owned();
    let _running = Running::start(rig);
    let error = ControlServer::bind(&path).map(drop).unwrap_err();
    assert!(matches!(error, BindError::Taken { pid: Some(42), .. }));
    let expected = format!(
        "ibtapd (process 42) already listens on the socket {}; stop it, or choose another \
         path with --socket",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_silent_listener_counts_as_live() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let _silent = UnixListener::bind(&path).unwrap();
    let error = ControlServer::bind(&path).map(drop).unwrap_err();
    assert!(
        matches!(error, BindError::Taken { pid: None, .. }),
        "{error}"
    );
    assert!(path.exists());
}

#[test]
fn other_files_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "mine").unwrap();
    let error = ControlServer::bind(&path).map(drop).unwrap_err();
    assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");

    let long = directory.path().join("x".repeat(120));
    let error = ControlServer::bind(&long)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(
            "the path has more than 107 bytes; choose another path with --socket, short and in a \
             writable directory"
        ),
        "{error}"
    );
}

#[test]
fn directories_made_for_the_socket_go_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/socket");
    drop(ControlServer::bind(&path).unwrap());
    assert!(!directory.path().join("a").exists());

    let refused = directory.path().join("c").join("x".repeat(120));
    assert!(ControlServer::bind(&refused).is_err());
    assert!(!directory.path().join("c").exists());

    let server = ControlServer::bind(&path).unwrap();
    std::fs::write(directory.path().join("a/notes.txt"), "mine").unwrap();
    drop(server);
    assert!(directory.path().join("a/notes.txt").exists());
    assert!(!directory.path().join("a/b").exists());
}

/// A program in a container with a process namespace of its own: the kernel gives the process id 0.
#[test]
fn a_client_outside_our_process_namespace_has_the_process_id_0() {
    const INSIDE: &str = "IBTAP_TEST_CALLER";
    const TEST: &str =
        "server::tests::socket::a_client_outside_our_process_namespace_has_the_process_id_0";
    if std::env::var_os(INSIDE).is_some() {
        let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
        let caller = caller(&stream, GroupAccess::Read).unwrap();
        assert_eq!((caller.pid, caller.may_change), (0, true));
        return;
    }
    if !kit::is_root() {
        return;
    }
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let inside = std::process::Command::new("unshare")
        .args(["--pid", "--fork"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST])
        .env(INSIDE, "")
        .stdin(OwnedFd::from(theirs))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&inside.stdout);
    assert!(
        inside.status.success() && text.contains("1 passed"),
        "{text}"
    );
}
