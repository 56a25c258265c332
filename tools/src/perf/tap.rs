//! TAPs for the carriers: one queue, all offloads, blocking.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use netdev::tap::{Tap, TapOptions};
use rustix::fs::OFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Opens the TAP `name`, which exists as long as the file and its clones.
///
/// # Errors
///
/// A sentence about the refusal.
pub fn open(name: &str) -> Result<File> {
    let (tap, queues) = Tap::open(&TapOptions {
        name: name.to_owned(),
        queues: 1,
        persist: false,
    })?;
    tap.set_carrier(true)?;
    let queue = queues.first().context("the TAP has no queue")?;
    let fd = queue.as_fd().try_clone_to_owned()?;
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK)?;
    Ok(File::from(fd))
}

/// Opens the TAP `name` in a named network namespace. A separate thread enters the namespace.
///
/// # Errors
///
/// The namespace does not exist, or the TAP cannot be opened.
pub fn open_in(namespace: &str, name: &str) -> Result<File> {
    let path = Path::new("/run/netns").join(namespace);
    let namespace_fd = File::open(&path)
        .with_context(|| format!("no network namespace \"{namespace}\" (see ip netns)"))?;
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                move_into_link_name_space(namespace_fd.as_fd(), Some(LinkNameSpaceType::Network))
                    .with_context(|| format!("cannot enter the namespace \"{namespace}\""))?;
                open(name).with_context(|| format!("in the namespace \"{namespace}\""))
            })
            .join()
            .map_err(|_| anyhow!("the thread that opens {name} panicked"))?
    })
}
