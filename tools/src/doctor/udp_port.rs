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
    /// The process of the daemon, if visible, and whether the daemon serves this underlay.
    pub daemon: Option<(Option<u32>, bool)>,
    /// A daemon has the control socket and was not asked: it is starting, is busy, or refuses this user.
    pub unasked: bool,
    /// Whether the kernel's rdma_rxe is loaded.
    pub rxe: bool,
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
    let is_ours = matches!(facts.daemon, Some((_, true)));
    match user {
        PortUser::Free if is_ours => finding(
            Level::Warn,
            "is free, but ibtapd serves this underlay".into(),
        )
        .advise("ibtapd has lost its sockets, or runs in another namespace; see its log"),
        PortUser::Free => finding(Level::Ok, "is free".into()),
        PortUser::Daemon(pid) if is_ours => {
            finding(Level::Ok, format!("is in use by ibtapd{}", process(*pid)))
        }
        PortUser::Daemon(pid) if facts.unasked => finding(
            Level::Note,
            format!("is in use by an ibtapd{} that could not be asked", process(*pid)),
        ),
        PortUser::Daemon(pid) => finding(
            Level::Fail,
            format!("another ibtapd{} serves this underlay", process(*pid)),
        )
        .advise("inspect that daemon with --socket PATH; or stop it, or choose another underlay"),
        // A daemon of another user, who could not lock the port against root.
        PortUser::Process(user) if is_ours && is_daemon(facts, user.pid) => {
            finding(Level::Ok, format!("is in use by ibtapd{}", process(Some(user.pid))))
        }
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

/// Whether the daemon of the control socket is this process.
fn is_daemon(facts: &Facts, pid: u32) -> bool {
    matches!(facts.daemon, Some((Some(daemon), _)) if daemon == pid)
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

#[cfg(test)]
mod tests {
    use fabric::soft::Process;

    use super::*;

    fn judged(user: PortUser, daemon: Option<(Option<u32>, bool)>, rxe: bool) -> Finding {
        let user = Ok(user);
        let facts = Facts {
            user,
            daemon,
            unasked: false,
            rxe,
        };
        judge("eth0", &facts)
    }

    #[test]
    fn free_is_right_without_a_daemon_only() {
        assert_eq!(judged(PortUser::Free, None, false).level, Level::Ok);
        let other = Some((Some(7), false));
        assert_eq!(judged(PortUser::Free, other, false).level, Level::Ok);
        let ours = Some((Some(7), true));
        assert_eq!(judged(PortUser::Free, ours, false).level, Level::Warn);
    }

    #[test]
    fn our_daemon_may_have_it_and_no_other() {
        let ours = judged(PortUser::Daemon(Some(7)), Some((Some(7), true)), false);
        assert_eq!(ours.level, Level::Ok);
        let other = judged(PortUser::Daemon(Some(8)), None, false);
        assert_eq!(other.level, Level::Fail);
        assert!(other.found.contains("process 8"), "{}", other.found);
    }

    /// It is most likely the daemon of the control socket.
    #[test]
    fn a_daemon_that_could_not_be_asked_is_no_failure() {
        for pid in [None, Some(7)] {
            let facts = Facts {
                user: Ok(PortUser::Daemon(pid)),
                daemon: None,
                unasked: true,
                rxe: false,
            };
            let f = judge("eth0", &facts);
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
        let own = Some((Some(9), true));
        let f = judged(PortUser::Process(process.clone()), own, false);
        assert_eq!(f.level, Level::Ok);
        let f = judged(PortUser::Process(process), None, false);
        assert_eq!(f.level, Level::Fail);
        assert!(
            f.found.contains("process 9 (python3, user 1000)"),
            "{}",
            f.found
        );
        let f = judged(PortUser::Unseen, None, true);
        assert!(f.found.contains("rdma_rxe"), "{}", f.found);
        assert!(f.advice.unwrap().contains("rdma link delete"));
        let f = judged(PortUser::Unseen, None, false);
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
                daemon: None,
                unasked: false,
                rxe: false,
            },
        );
        assert_eq!(f.level, Level::Warn);
    }
}
