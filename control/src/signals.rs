//! Signals as a descriptor to wait for.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, recv};
pub use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Some signals. The descriptor is readable while one was not taken; from [`Signals::catch`] on, they do not end the
/// process.
#[derive(Debug)]
pub struct Signals(UnixStream);

impl Signals {
    /// Catches these signals.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn catch(which: &[i32]) -> io::Result<Signals> {
        let (read, write) = UnixStream::pair()?;
        for signal in which {
            signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
        }
        Ok(Signals(read))
    }

    /// Takes the signals that have arrived; returns whether there were any. Does not wait.
    pub fn take(&mut self) -> bool {
        recv(&self.0, &mut [0; 16], RecvFlags::DONTWAIT).is_ok_and(|(_, n)| n > 0)
    }

    /// Waits for a signal, and takes it.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.read_exact(&mut [0])
    }

    /// Another descriptor of the same signals.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone().map(OwnedFd::from)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn a_signal_is_taken_once() {
        let mut signals = Signals::catch(&[SIGHUP]).unwrap();
        assert!(!signals.take());
        let hang_up = || kill_process(getpid(), Signal::HUP).unwrap();
        hang_up();
        signals.wait().unwrap();
        assert!(!signals.take());
        hang_up();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !signals.take() {
            assert!(Instant::now() < deadline);
        }
        assert!(!signals.take());
    }
}
