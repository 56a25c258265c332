//! The user of UDP port 4791 on an underlay.

use std::io;

use fabric::soft::PortUser;

use super::finding::{Finding, Level};

const CHECK: &str = "port 4791";

/// Facts of this check.
#[derive(Debug)]
pub struct Facts {
    /// The port's user.
    pub user: io::Result<PortUser>,
    /// The daemon of the control socket.
    pub daemon: Daemon,
    /// Whether the kernel's rdma_rxe is loaded.
    pub rxe: bool,
}

/// What is known about the daemon of the control socket. Processes are `None` if not visible.
#[derive(Clone, Copy, Debug)]
pub enum Daemon {
    /// No daemon answers.
    Absent,
    /// The daemon answers.
    Answers {
        /// Its process.
        pid: Option<u32>,
        /// It has interfaces on this underlay.
        serves: bool,
    },
    /// The daemon could not be asked: it is starting, is busy, hangs, or refuses this user.
    Unasked(Option<u32>),
}

impl Daemon {
    fn pid(self) -> Option<u32> {
        match self {
            Daemon::Absent => None,
            Daemon::Answers { pid, .. } | Daemon::Unasked(pid) => pid,
        }
    }

    /// Whether the `ibtapd` that has the port is, or may be, this daemon.
    fn may_be(self, user: Option<u32>) -> bool {
        match (self, user) {
            (Daemon::Absent, _) => false,
            (daemon, Some(user)) if daemon.pid().is_some() => daemon.pid() == Some(user),
            (Daemon::Answers { serves, .. }, _) => serves,
            (Daemon::Unasked(_), _) => true,
        }
    }
}

/// Judges the facts.
pub fn judge(name: &str, facts: &Facts) -> Finding {
    let finding = |level, found: String| Finding::new(CHECK, level, name, found);
    let user = match &facts.user {
        Ok(user) => user,
        Err(e) => {
            return finding(Level::Warn, format!("cannot be checked: {e}"))
                .advise("run this as root");
        }
    };
    // A daemon of another user could not lock the port against root.
    let user = match user {
        PortUser::Process(user) if facts.daemon.pid() == Some(user.pid) => {
            &PortUser::Daemon(Some(user.pid))
        }
        user => user,
    };
    match user {
        PortUser::Free if matches!(facts.daemon, Daemon::Answers { serves: true, .. }) => finding(
            Level::Warn,
            "is free, but ibtapd serves this underlay".into(),
        )
        .advise("ibtapd has lost its sockets, or runs in another namespace; see its log"),
        PortUser::Free => finding(Level::Ok, "is free".into()),
        PortUser::Daemon(pid) if facts.daemon.may_be(*pid) => match facts.daemon {
            Daemon::Unasked(_) => finding(
                Level::Note,
                format!("is in use by an ibtapd{} that could not be asked", process(*pid)),
            ),
            _ => finding(Level::Ok, format!("is in use by ibtapd{}", process(*pid))),
        },
        PortUser::Daemon(pid) => finding(
            Level::Fail,
            format!("another ibtapd{} serves this underlay", process(*pid)),
        )
        .advise("inspect that daemon with --socket PATH; or stop it, or choose another underlay"),
        PortUser::Process(process) => {
            finding(Level::Fail, format!("is in use by {process}"))
        }
        .advise("stop the process, or choose another underlay"),
        PortUser::Unseen if facts.rxe => finding(
            Level::Fail,
            "is most likely in use by the kernel's rdma_rxe".into(),
        )
        .advise("rdma link show; rdma link delete NAME; modprobe -r rdma_rxe; or use another network namespace"),
        PortUser::Unseen => finding(
            Level::Fail,
            "is in use by a process that is not visible here".into(),
        )
        .advise("run this as root; if no process is visible then, check other containers (ss -ulpn)"),
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

#[cfg(test)]
mod tests {
    use fabric::soft::Process;

    use super::*;

    fn judged(user: PortUser, daemon: Daemon, rxe: bool) -> Finding {
        let user = Ok(user);
        judge("eth0", &Facts { user, daemon, rxe })
    }

    /// A daemon with interfaces on the underlay.
    fn answers(pid: u32) -> Daemon {
        Daemon::Answers {
            pid: Some(pid),
            serves: true,
        }
    }

    #[test]
    fn free_is_right_without_a_daemon_only() {
        assert_eq!(
            judged(PortUser::Free, Daemon::Absent, false).level,
            Level::Ok
        );
        let ours = answers(7);
        assert_eq!(judged(PortUser::Free, ours, false).level, Level::Warn);
    }

    #[test]
    fn our_daemon_may_have_it_and_no_other() {
        let ours = judged(PortUser::Daemon(Some(7)), answers(7), false);
        assert_eq!(ours.level, Level::Ok);
        let idle = Daemon::Answers {
            pid: Some(7),
            serves: false,
        };
        assert_eq!(
            judged(PortUser::Daemon(Some(7)), idle, false).level,
            Level::Ok
        );
        let busy = Daemon::Unasked(Some(7));
        for daemon in [idle, busy] {
            let other = judged(PortUser::Daemon(Some(8)), daemon, false);
            assert_eq!(other.level, Level::Fail, "{daemon:?}");
        }
        let other = judged(PortUser::Daemon(Some(8)), Daemon::Absent, false);
        assert_eq!(other.level, Level::Fail);
        assert!(other.found.contains("process 8"), "{}", other.found);
    }

    /// It is most likely the daemon of the control socket.
    #[test]
    fn a_daemon_that_could_not_be_asked_is_no_failure() {
        let process = Process {
            pid: 9,
            name: "ibtapd".into(),
            uid: 999,
        };
        for (user, pid) in [
            (PortUser::Daemon(None), None),
            (PortUser::Daemon(Some(7)), None),
            (PortUser::Process(process), Some(9)),
        ] {
            let f = judged(user, Daemon::Unasked(pid), false);
            assert_eq!((f.level, f.advice), (Level::Note, None), "{}", f.found);
        }
    }

    #[test]
    fn the_user_is_named() {
        let process = Process {
            pid: 9,
            name: "python3".into(),
            uid: 1000,
        };
        // ibtapd as the user ibtap, seen by root.
        let own = answers(9);
        let f = judged(PortUser::Process(process.clone()), own, false);
        assert_eq!(f.level, Level::Ok);
        let f = judged(PortUser::Process(process), Daemon::Absent, false);
        assert_eq!(f.level, Level::Fail);
        assert!(
            f.found.contains("process 9 (python3, user 1000)"),
            "{}",
            f.found
        );
        let f = judged(PortUser::Unseen, Daemon::Absent, true);
        assert!(f.found.contains("rdma_rxe"), "{}", f.found);
        assert!(f.advice.unwrap().contains("rdma link delete"));
        let f = judged(PortUser::Unseen, Daemon::Absent, false);
        assert_eq!(f.level, Level::Fail);
        assert!(!f.found.contains("rxe"));
    }

    #[test]
    fn not_knowing_is_no_failure() {
        let user = Err(io::ErrorKind::PermissionDenied.into());
        let f = judge(
            "eth0",
            &Facts {
                user,
                daemon: Daemon::Absent,
                rxe: false,
            },
        );
        assert_eq!(f.level, Level::Warn);
    }
}
