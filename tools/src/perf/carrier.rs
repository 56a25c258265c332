//! Blocking copy loop from one descriptor to another, for both reference carriers.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use anyhow::{Context, Result};

/// Room for the longest frame of a TAP: virtio-net header, Ethernet header and 64 KiB.
pub const FRAME_BYTES: usize = 1 << 17;

/// Copies whole frames until the process ends, with one `read` and one `write` for each frame.
///
/// # Errors
///
/// Permanent errors of a descriptor. If an interface is down, a peer is missing or a queue is full, only the
/// current frame is lost.
pub fn copy_frames(from: &File, to: &File, what: &str) -> Result<()> {
    let (mut from, mut to) = (from, to);
    let mut frame = vec![0u8; FRAME_BYTES];
    loop {
        let length = match from.read(&mut frame) {
            Ok(length) => length,
            Err(e) if is_passing(&e) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(e) => return Err(e).with_context(|| format!("{what}: cannot read")),
        };
        match to.write(&frame[..length]) {
            Ok(_) => {}
            Err(e) if is_passing(&e) => {}
            Err(e) => return Err(e).with_context(|| format!("{what}: cannot write")),
        }
    }
}

/// Whether the error is temporary. EIO: the TAP is down. ECONNREFUSED: the peer has not started.
fn is_passing(e: &std::io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::Interrupted | ErrorKind::ConnectionRefused | ErrorKind::NetworkUnreachable
    ) || matches!(
        e.raw_os_error(),
        Some(libc::EIO | libc::ENOBUFS | libc::ENETDOWN | libc::EHOSTUNREACH | libc::EINVAL)
    )
}

/// Runs both directions in two threads until one of them fails.
///
/// # Errors
///
/// The first failure of either direction.
pub fn copy_both_ways(a: File, b: File) -> Result<()> {
    let (a2, b2) = (a.try_clone()?, b.try_clone()?);
    let (report, failed) = std::sync::mpsc::channel();
    for (from, to, what) in [(a, b, "first to second"), (b2, a2, "second to first")] {
        let report = report.clone();
        std::thread::spawn(move || {
            // Without a receiver, the process is about to end.
            let _ = report.send(copy_frames(&from, &to, what));
        });
    }
    failed.recv().context("both copying threads ended")?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    fn pair() -> (UnixDatagram, File) {
        let (near, far) = UnixDatagram::pair().expect("a socket pair");
        near.set_read_timeout(Some(Duration::from_secs(5)))
            .expect("a timeout");
        (near, File::from(OwnedFd::from(far)))
    }

    #[test]
    fn frames_cross_whole_and_in_both_directions() {
        let ((a, a_end), (b, b_end)) = (pair(), pair());
        std::thread::spawn(move || copy_both_ways(a_end, b_end));
        let frame: Vec<u8> = (0..60_000u32).map(|i| i as u8).collect();
        let mut got = vec![0; FRAME_BYTES];
        for (from, to) in [(&a, &b), (&b, &a)] {
            for length in [1, 60, 1514, 60_000] {
                from.send(&frame[..length]).expect("sent");
                let n = to.recv(&mut got).expect("received");
                assert_eq!(&got[..n], &frame[..length]);
            }
        }
    }
}
