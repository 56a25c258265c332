//! Event sources of a port, and the wait until it is usable.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rtnl::{Monitor, Requests};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{EVENTS_MAX, TICK};
use crate::kernel::{Timer, clock};
use crate::port::FabricError;
use crate::verbs::config::VerbsConfig;
use crate::verbs::device::Device;
use crate::verbs::port_state::{Seen, Usable, evaluate, see};
use crate::verbs::unusable::Unusable;

/// Creates the epoll instance for [`crate::Port::process`]: interface changes, news of the
/// workers (`woken`), and a timer.
pub(super) fn waiting(monitor: &Monitor, woken: &OwnedFd) -> io::Result<(OwnedFd, Timer)> {
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let timer = Timer::new()?;
    timer.set(TICK, TICK)?;
    let data = EventData::new_u64(0);
    epoll::add(&events, monitor, data, EventFlags::IN)?;
    epoll::add(&events, woken, data, EventFlags::IN)?;
    epoll::add(&events, &timer, data, EventFlags::IN)?;
    Ok((events, timer))
}

/// Adds a descriptor to the epoll instance.
///
/// # Errors
/// Errors of epoll_ctl(2).
pub(super) fn add(events: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(epoll::add(
        events,
        fd,
        EventData::new_u64(0),
        EventFlags::IN,
    )?)
}

/// Removes a descriptor from the epoll instance.
pub(super) fn remove(events: &OwnedFd, fd: BorrowedFd<'_>) {
    // It is there, see `add`.
    let _ = epoll::delete(events, fd);
}

/// Waits until the port is usable.
///
/// # Errors
/// Why it is not usable, when the time is up or waiting does not help.
pub(super) fn wait_usable(
    config: &VerbsConfig,
    device: &Device,
    monitor: &mut Monitor,
    requests: &mut Requests,
) -> Result<(Seen, Usable), FabricError> {
    let failed = |what: &str| {
        let what = format!("{}: {what}", config.name());
        move |source| FabricError::Os { what, source }
    };
    let deadline = clock().after(config.gid_wait);
    let mut reported = String::new();
    loop {
        monitor.drain();
        for _ in 0..EVENTS_MAX {
            if !matches!(device.context.next_event(), Ok(Some(_))) {
                break;
            }
        }
        let seen =
            see(&device.context, config.port, requests).map_err(failed("cannot query the port"))?;
        let why = match evaluate(config, &seen, None) {
            Ok(usable) => return Ok((seen, usable)),
            Err(why) => why,
        };
        let left = deadline.since(clock());
        if left.is_zero() || !matches!(why, Unusable::Waiting(_)) {
            return Err(FabricError::Unusable(why.reason().to_owned()));
        }
        if reported != why.reason() {
            why.reason().clone_into(&mut reported);
            log::info!("waiting: {reported}");
        }
        // Not all changes cause an event.
        let timeout = Timespec::try_from(left.min(TICK)).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        let events = device
            .context
            .async_fd()
            .map_err(failed("cannot wait for events of the device"))?;
        let mut wakers = vec![
            PollFd::new(monitor, PollFlags::IN),
            PollFd::new(&events, PollFlags::IN),
        ];
        let give_up = config.give_up.iter();
        wakers.extend(give_up.map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut wakers, Some(&timeout)) {
            Ok(_) if wakers.get(2).is_some_and(|fd| !fd.revents().is_empty()) => {
                return Err(FabricError::Unusable(reported));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(failed("cannot wait for the port")(e.into())),
        }
    }
}
