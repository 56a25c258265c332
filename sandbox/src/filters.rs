//! The seccomp filters (seccomp(2)).

use std::env::consts::ARCH;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use crate::calls::{self, Call};
use crate::{Thread, refused};

/// The filter of data threads. The filter of the process applies to them, too.
pub(crate) struct Filters {
    data: [BpfProgram; 2],
}

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
enum FilterError {
    #[error("no list of system calls for the processor architecture {ARCH}")]
    Architecture,
    #[error(transparent)]
    Filter(#[from] seccompiler::Error),
    #[error("cannot handle SIGSYS: {0}")]
    Handler(#[from] std::io::Error),
}

/// Applies the filter of the process to the calling thread and the threads it will make.
pub(crate) fn begin() -> Option<Filters> {
    let begin = || -> Result<Filters, FilterError> {
        refused::handle_signal()?;
        let filters = Filters {
            data: of_data_thread()?,
        };
        apply_filter(&without_absent()?)?;
        apply_filter(&refusing(calls::of_process())?)?;
        Ok(filters)
    };
    begin()
        .map_err(|error| log::warn!("seccomp does not restrict system calls: {error}"))
        .ok()
}

impl Filters {
    /// Applies the filter of a data thread to the calling thread.
    pub(crate) fn enter(&self, thread: Thread) {
        if thread != Thread::Data {
            return;
        }
        for filter in &self.data {
            if let Err(error) = apply_filter(filter) {
                log::warn!("seccomp does not restrict a data thread: {error}");
            }
        }
    }
}

/// A filter that allows these calls. Others raise SIGSYS, whose handler makes them fail with EPERM.
fn refusing(calls: Vec<Call>) -> Result<BpfProgram, FilterError> {
    compile(calls, SeccompAction::Trap, SeccompAction::Allow)
}

/// The filters of a data thread.
fn of_data_thread() -> Result<[BpfProgram; 2], FilterError> {
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let quiet = compile(calls::quietly_refused(), SeccompAction::Allow, refuse)?;
    Ok([quiet, refusing(calls::of_data_thread())?])
}

/// A filter that allows no new processes, and no waiting for files.
fn without_absent() -> Result<BpfProgram, FilterError> {
    let refuse = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    compile(calls::absent(), SeccompAction::Allow, refuse)
}

fn compile(
    calls: Vec<Call>,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, FilterError> {
    let architecture = TargetArch::try_from(ARCH).map_err(|_| FilterError::Architecture)?;
    let rules = calls.into_iter().collect();
    let filter = SeccompFilter::new(rules, others, these, architecture);
    let program = filter.and_then(BpfProgram::try_from);
    Ok(program.map_err(seccompiler::Error::from)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::io::ErrorKind;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::{Mutex, PoisonError};
    use std::thread;

    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket, socket_with};
    use rustix::process::{Pid, Resource, getppid, getrlimit, prlimit, test_kill_process};

    use super::*;
    use crate::refused::count;

    /// Refused calls are counted for the process, so these tests take turns.
    static TURN: Mutex<()> = Mutex::new(());

    /// Runs `attack` on a thread with these filters; the threads of other tests have none.
    fn with(filters: Vec<BpfProgram>, attack: impl FnOnce() + Send) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        refused::handle_signal().unwrap();
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                for filter in filters {
                    apply_filter(&filter).unwrap();
                }
                attack();
            });
            thread.join().unwrap();
        });
    }

    fn of_process() -> Vec<BpfProgram> {
        vec![
            without_absent().unwrap(),
            refusing(calls::of_process()).unwrap(),
        ]
    }

    #[test]
    fn a_data_thread_opens_no_file_and_no_socket() {
        let open = || File::open("/dev/null").map(drop);
        let create = || File::create("/dev/null").map(drop);
        let bind = || UdpSocket::bind("127.0.0.1:0").map(drop);
        assert!(open().is_ok() && create().is_ok() && bind().is_ok());
        with(of_data_thread().unwrap().into(), || {
            let before = count();
            for refused in [open(), create(), bind()] {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
            }
            // Opening for reading is refused without a report.
            assert_eq!(count(), before + 2);
            // What it does for packets still works.
            let (vec, text) = (vec![0u8; 1 << 20], format!("{}", 7));
            assert_eq!((vec.len(), text.as_str()), (1 << 20, "7"));
        });
    }

    #[test]
    fn no_thread_executes_programs_or_makes_processes_and_threads_still_start() {
        let parent = getppid().expect("a parent");
        assert!(test_kill_process(parent).is_ok());
        with(of_process(), || {
            let mut program = Command::new("/bin/false");
            assert_eq!(program.status().unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(program.exec().kind(), ErrorKind::PermissionDenied);
            let signalled = test_kill_process(Pid::INIT);
            assert_eq!(signalled, Err(Errno::PERM));
            assert!(File::open("/dev/null").is_ok());
            assert!(UdpSocket::bind("127.0.0.1:0").is_ok());
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
        });
    }

    /// The control thread of a daemon with RDMA devices has CAP_NET_RAW.
    #[test]
    fn no_thread_makes_packet_or_raw_sockets() {
        // include/linux/net.h
        const SOCK_PACKET: u32 = 10;
        with(of_process(), || {
            let before = count();
            let refused = [
                (AddressFamily::PACKET, SocketType::RAW),
                (AddressFamily::INET, SocketType::RAW),
                (AddressFamily::INET, SocketType::from_raw(SOCK_PACKET)),
                (AddressFamily::INET6, SocketType::RAW),
            ];
            for (family, kind) in refused {
                let made = socket(family, kind, Some(ipproto::ICMP));
                assert_eq!(made.unwrap_err(), Errno::PERM, "{family:?} {kind:?}");
            }
            assert_eq!(count(), before + 4);
            for family in [AddressFamily::INET, AddressFamily::INET6] {
                for kind in [SocketType::STREAM, SocketType::DGRAM] {
                    let made = socket_with(family, kind, SocketFlags::CLOEXEC, None);
                    assert!(made.is_ok(), "{family:?} {kind:?}");
                }
            }
            assert!(socket(AddressFamily::NETLINK, SocketType::RAW, None).is_ok());
        });
    }

    /// Signals by way of descriptors, and limits of other processes.
    #[test]
    #[allow(unsafe_code)]
    fn no_thread_harms_other_processes_by_other_calls() {
        // include/uapi/asm-generic/fcntl.h
        const F_SETSIG: i32 = 10;
        let parent = getppid().expect("a parent");
        let owner = parent.as_raw_nonzero().get();
        with(of_process(), || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let fd = socket.as_raw_fd();
            let refused = [
                // SAFETY: the descriptor is open, and the command takes a number.
                unsafe { libc::fcntl(fd, libc::F_SETOWN, owner) },
                // SAFETY: as above.
                unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGKILL) },
                // SAFETY: the request reads an int, which lives over the call.
                unsafe { libc::ioctl(fd, 0x8901, &raw const owner) },
                // SAFETY: as above.
                unsafe { libc::ioctl(fd, 0x8902, &raw const owner) },
            ];
            assert_eq!(refused, [-1; 4]);
            let limit = getrlimit(Resource::Cpu);
            let of_parent = prlimit(Some(parent), Resource::Cpu, limit);
            assert_eq!(of_parent.unwrap_err(), Errno::PERM);
            assert!(prlimit(None, Resource::Cpu, limit).is_ok());
            // What a daemon does with descriptors.
            socket.set_nonblocking(true).unwrap();
            assert!(socket.try_clone().is_ok());
        });
    }

    /// libibverbs asks for notifications of files when it cannot open a device, to wait for the node.
    #[test]
    #[allow(unsafe_code)]
    fn no_thread_waits_for_files_and_the_attempt_is_no_fault() {
        with(of_process(), || {
            let before = count();
            // SAFETY: the call takes flags only.
            let made = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
            let error = std::io::Error::last_os_error();
            assert_eq!((made, error.raw_os_error()), (-1, Some(libc::ENOSYS)));
            assert_eq!(count(), before);
        });
    }

    #[test]
    fn a_data_thread_makes_no_thread_and_goes_on() {
        with(of_data_thread().unwrap().into(), || {
            assert!(thread::Builder::new().spawn(|| ()).is_err());
            assert!(Command::new("/bin/true").spawn().is_err());
        });
    }

    /// A panic is reported although the thread's calls are few, and ends the thread only.
    #[test]
    fn a_thread_with_a_filter_can_panic() {
        with(of_data_thread().unwrap().into(), || {
            let panicked = std::panic::catch_unwind(|| panic!("reported"));
            assert!(panicked.is_err());
        });
    }

    #[test]
    fn no_call_is_listed_twice() {
        for list in [calls::of_data_thread(), calls::of_process()] {
            let mut numbers = BTreeSet::new();
            let twice = list.iter().find(|(number, _)| !numbers.insert(*number));
            assert!(twice.is_none(), "{twice:?}");
        }
    }
}
