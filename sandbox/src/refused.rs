//! Refused system calls. The kernel raises SIGSYS in the calling thread (seccomp(2), SECCOMP_RET_TRAP); the handler
//! makes the call fail with EPERM and reports it. The signal frame is the kernel's: the only unsafe code of the
//! crate.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::mem::zeroed;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

static REPORT: OnceLock<fn(fmt::Arguments<'_>)> = OnceLock::new();

/// The number of refused calls.
#[cfg(test)]
static COUNT: AtomicU64 = AtomicU64::new(0);

/// One bit for each call that was reported, so that a repeated call does not flood the log.
static REPORTED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Sets the function that reports calls. It must not allocate memory or lock.
pub(crate) fn report_to(report: fn(fmt::Arguments<'_>)) {
    let _ = REPORT.set(report);
}

/// The number of refused calls so far.
#[cfg(test)]
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// `siginfo_t` of SIGSYS (kernel include/uapi/asm-generic/siginfo.h, `_sigsys`).
#[repr(C)]
struct Info {
    signal: c_int,
    error: c_int,
    code: c_int,
    address: *const c_void,
    call: c_int,
    architecture: u32,
}

/// `struct ucontext` up to the register with the result of a call (kernel arch/x86/include/uapi/asm/sigcontext.h):
/// r8 to r15, di, si, bp, bx, dx, then ax.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Context {
    flags_link_and_stack: [u64; 5],
    before: [u64; 13],
    result: u64,
}

/// `struct ucontext` up to x0 (kernel arch/arm64/include/uapi/asm/ucontext.h and sigcontext.h): a signal mask of
/// 128 bytes, an alignment to 16 bytes, and the fault address come before.
#[cfg(target_arch = "aarch64")]
#[repr(C)]
struct Context {
    flags_link_and_stack: [u64; 5],
    mask_and_padding: [u64; 17],
    fault_address: u64,
    result: u64,
}

/// `struct ucontext` up to a0 (kernel arch/riscv/include/uapi/asm/ucontext.h and ptrace.h): a signal mask of 128
/// bytes, an alignment to 16 bytes, and ten registers come before.
#[cfg(target_arch = "riscv64")]
#[repr(C)]
struct Context {
    flags_link_and_stack: [u64; 5],
    mask_and_padding: [u64; 17],
    before: [u64; 10],
    result: u64,
}

/// Handles SIGSYS from now on.
///
/// # Errors
/// Errors of sigaction(2).
pub(crate) fn handle_signal() -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = refuse;
    // SAFETY: zero is valid for each of the structure's integers and its optional function.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // A thread's alternate stack, if any, has room for the handler and its line.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the structure is complete; the handler has the signature of SA_SIGINFO, and it calls only what is
    // allowed in a handler (signal-safety(7)).
    let done = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

extern "C" fn refuse(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    /// The code of a call that a filter refused (kernel include/uapi/asm-generic/siginfo.h).
    const SYS_SECCOMP: c_int = 1;
    // SAFETY: the kernel passes a siginfo_t that is valid until the handler returns. Its first fields are those of
    // every signal; the others were written if the code is SYS_SECCOMP, and are initialised in any case.
    let info = unsafe { &*info.cast::<Info>() };
    // A signal that another process sent.
    if info.code != SYS_SECCOMP {
        return;
    }
    set_result(context, -i64::from(libc::EPERM));
    #[cfg(test)]
    COUNT.fetch_add(1, Ordering::Relaxed);
    let call = info.call.cast_unsigned();
    // All numbers beyond the table share the last bit.
    let place = (call as usize).min(REPORTED.len() * 64 - 1);
    let bit = 1 << (place % 64);
    let seen = REPORTED[place / 64].fetch_or(bit, Ordering::Relaxed) & bit != 0;
    if let Some(report) = REPORT.get()
        && !seen
    {
        // SAFETY: gettid(2) has no arguments and cannot fail.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        report(format_args!(
            "refused system call {call} of thread {thread}; report this as a fault, or set sandbox = false"
        ));
    }
}

/// Sets the result of the interrupted call.
fn set_result(context: *mut c_void, result: i64) {
    // SAFETY: the kernel passes its signal frame, which is valid until the handler returns and begins with this
    // structure. The kernel restores the registers from it.
    unsafe { (*context.cast::<Context>()).result = result.cast_unsigned() };
}
