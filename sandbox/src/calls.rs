//! The system calls of each kind of thread: those of the programs' source and of the C library, seen in the whole
//! test suite. A call's conditions bound its arguments.

use libc::{c_int, c_long};
use seccompiler::{
    SeccompCmpArgLen as Length, SeccompCmpOp as Compare, SeccompCondition, SeccompRule,
};

/// The auxiliary vector of the process: rustix reads the page size (kernel include/uapi/linux/prctl.h).
const PR_GET_AUXV: c_int = 0x4155_5856;

/// A call, and the conditions of which one must be true; without conditions the call is always allowed.
pub(crate) type Call = (c_long, Vec<SeccompRule>);

/// Calls of every thread: packets, memory, waiting, the end of a thread, and the report of a panic.
const OF_ALL: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    // Completion moderation waits on a descriptor of its own.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // What a thread does to enter its own restrictions.
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_seccomp,
];

/// Further calls of other threads: files, sockets, threads, and the libraries of RDMA devices.
const OF_OTHERS: &[c_long] = &[
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_eventfd2,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_pread64,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_unlinkat,
    libc::SYS_flock,
    libc::SYS_socketpair,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_pipe2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Bounded by absent.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_inotify_init1,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sched_getparam,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
];

/// Older forms of these calls, which other architectures do not have and some C libraries use.
#[cfg(target_arch = "x86_64")]
mod older {
    use super::c_long;

    pub(super) const OF_ALL: &[c_long] = &[libc::SYS_poll, libc::SYS_epoll_wait];
    pub(super) const OF_OTHERS: &[c_long] = &[
        libc::SYS_open,
        libc::SYS_stat,
        libc::SYS_lstat,
        libc::SYS_access,
        libc::SYS_readlink,
        libc::SYS_unlink,
        libc::SYS_rmdir,
        libc::SYS_select,
        libc::SYS_getrlimit,
        libc::SYS_arch_prctl,
    ];
}

#[cfg(not(target_arch = "x86_64"))]
mod older {
    use super::c_long;

    pub(super) const OF_ALL: &[c_long] = &[];
    pub(super) const OF_OTHERS: &[c_long] = &[];
}

/// The calls of a data thread on an underlay.
pub(crate) fn of_data_thread() -> Vec<Call> {
    let executable = (2, libc::PROT_EXEC, 0);
    let own = std::process::id().cast_signed();
    let mut calls = free(&[OF_ALL, older::OF_ALL]);
    calls.extend([
        (libc::SYS_mmap, vec![masked(executable)]),
        (libc::SYS_mprotect, vec![masked(executable)]),
        (libc::SYS_prctl, own_settings()),
        // Debug builds of std check a descriptor before they close it.
        (libc::SYS_fcntl, vec![equal((1, libc::F_GETFD))]),
        // abort(3) raises a signal in the own process.
        (libc::SYS_tgkill, vec![equal((0, own))]),
    ]);
    // The other filter refuses these.
    calls.extend(quietly_refused());
    calls
}

/// Calls of a data thread that fail without a log line: glibc reads /proc/sys/vm/overcommit_memory before it shrinks a
/// heap, and shrinks it in another way if it cannot; calls that make threads and processes, see [`absent`].
pub(crate) fn quietly_refused() -> Vec<Call> {
    vec![
        (libc::SYS_openat, vec![read_only()]),
        (libc::SYS_clone, Vec::new()),
        (libc::SYS_clone3, Vec::new()),
    ]
}

/// The calls of all threads together.
pub(crate) fn of_process() -> Vec<Call> {
    let mut calls = of_data_thread();
    // These have fewer conditions here.
    let quiet = quietly_refused().into_iter().map(|(number, _)| number);
    let wider: Vec<c_long> = quiet.chain([libc::SYS_mmap, libc::SYS_fcntl]).collect();
    let own = std::process::id().cast_signed();
    calls.retain(|(number, _)| !wider.contains(number));
    calls.extend(free(&[OF_OTHERS, older::OF_OTHERS]));
    let writable_or_executable = libc::PROT_WRITE | libc::PROT_EXEC;
    calls.extend([
        // Libraries of RDMA devices are loaded when a port opens one: executable memory is never writable.
        (
            libc::SYS_mmap,
            [0, libc::PROT_WRITE, libc::PROT_EXEC]
                .map(|value| masked((2, writable_or_executable, value)))
                .into(),
        ),
        (libc::SYS_fcntl, of_descriptors()),
        // Other processes keep their limits.
        (libc::SYS_prlimit64, one_of(0, &[0, own])),
        (libc::SYS_ioctl, harmless_requests()),
        (libc::SYS_socket, sockets()),
        (libc::SYS_setns, vec![equal((1, libc::CLONE_NEWNET))]),
    ]);
    calls
}

/// Calls that fail as on a kernel without them. First those that make processes, and clone3(2): its flags are in
/// memory, where a filter cannot see them, and without it C libraries make threads with clone(2). C libraries block
/// all signals during these calls, also SIGSYS, which would end the process. So these calls fail without a signal.
///
/// And inotify_init1(2): libibverbs calls it when it cannot open a device, and would wait up to 5 s for the node
/// (rdma-core util/open_cdev.c). Meanwhile the control thread would do nothing else.
pub(crate) fn absent() -> Vec<Call> {
    let process = vec![masked((0, libc::CLONE_THREAD, 0))];
    vec![
        (libc::SYS_clone, process),
        (libc::SYS_clone3, Vec::new()),
        (libc::SYS_inotify_init1, Vec::new()),
    ]
}

/// Calls without conditions.
fn free(lists: &[&[c_long]]) -> Vec<Call> {
    let numbers = lists.iter().flat_map(|list| list.iter());
    numbers.map(|number| (*number, Vec::new())).collect()
}

/// openat(2) for reading only, as std and C libraries call it.
fn read_only() -> SeccompRule {
    equal((2, libc::O_RDONLY | libc::O_CLOEXEC))
}

/// prctl(2): the thread's name, and what it needs to enter its own restrictions.
fn own_settings() -> Vec<SeccompRule> {
    let allowed = [
        libc::PR_SET_NAME,
        libc::PR_GET_NAME,
        libc::PR_SET_NO_NEW_PRIVS,
        libc::PR_SET_VMA,
        PR_GET_AUXV,
    ];
    one_of(0, &allowed)
}

/// The type of a socket without its flags (kernel include/linux/net.h).
const SOCK_TYPE_MASK: c_int = 0xf;

/// The families of socket(2), and the types of Internet sockets: no packet sockets, which AF_INET with SOCK_PACKET
/// makes, too, and no raw sockets.
fn sockets() -> Vec<SeccompRule> {
    let mut allowed = one_of(0, &[libc::AF_UNIX, libc::AF_NETLINK]);
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            let mask = Compare::MaskedEq(u64::from(SOCK_TYPE_MASK.cast_unsigned()));
            let is_kind = condition(1, mask, kind);
            allowed.push(rule(vec![condition(0, Compare::Eq, family), is_kind]));
        }
    }
    allowed
}

/// fcntl(2): not what lets the kernel send signals to another process (F_SETOWN, F_SETSIG).
fn of_descriptors() -> Vec<SeccompRule> {
    let allowed = [
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
    ];
    one_of(1, &allowed)
}

/// The owner of a socket, who gets its signals (socket(7); include/uapi/asm-generic/sockios.h).
const FIOSETOWN: c_int = 0x8901;
const SIOCSPGRP: c_int = 0x8902;

/// ioctl(2) with all requests but those that type commands into the terminal of the daemon (ioctl_tty(2)), and those
/// that let the kernel send signals to another process.
fn harmless_requests() -> Vec<SeccompRule> {
    // The type of a request is the C library's: 32 or 64 bits.
    let requests = [
        libc::TIOCSTI as c_int,
        libc::TIOCLINUX as c_int,
        FIOSETOWN,
        SIOCSPGRP,
    ];
    let conditions = requests.map(|request| condition(1, Compare::Ne, request));
    vec![rule(conditions.into())]
}

/// Argument `index` is one of `values`.
fn one_of(index: u8, values: &[c_int]) -> Vec<SeccompRule> {
    values.iter().map(|value| equal((index, *value))).collect()
}

/// Argument `index` is `value`.
fn equal((index, value): (u8, c_int)) -> SeccompRule {
    rule(vec![condition(index, Compare::Eq, value)])
}

/// The bits `mask` of argument `index` are `value`.
fn masked((index, mask, value): (u8, c_int, c_int)) -> SeccompRule {
    let mask = Compare::MaskedEq(u64::from(mask.cast_unsigned()));
    rule(vec![condition(index, mask, value)])
}

/// A condition on the lower 32 bits of an argument.
fn condition(index: u8, compare: Compare, value: c_int) -> SeccompCondition {
    SeccompCondition::new(
        index,
        Length::Dword,
        compare,
        u64::from(value.cast_unsigned()),
    )
    .expect("system calls have 6 arguments")
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("a rule has a condition")
}
