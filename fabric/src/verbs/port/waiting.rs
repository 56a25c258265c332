//! What a port waits on, and waiting until it can be used.

use std::io;
use std::os::fd::OwnedFd;

use rtnl::{Monitor, Requests};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::{EVENTS_MAX, TICK};
use crate::kernel::clock;
use crate::port::FabricError;
use crate::verbs::config::VerbsConfig;
use crate::verbs::device::Device;
use crate::verbs::snapshot::Shared;
use crate::verbs::watch::{Seen, Unusable, Usable, evaluate, see};

/// What [`crate::Port::process`] waits on: changes of interfaces, complaints of the worker, and time.
pub(super) fn waiting(monitor: &Monitor, shared: &Shared) -> io::Result<(OwnedFd, OwnedFd)> {
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let timer = timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
    )?;
    let tick = Timespec {
        tv_sec: TICK.as_secs() as i64,
        tv_nsec: 0,
    };
    let every = Itimerspec {
        it_interval: tick,
        it_value: tick,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    let data = EventData::new_u64(0);
    epoll::add(&events, monitor, data, EventFlags::IN)?;
    epoll::add(&events, &shared.port, data, EventFlags::IN)?;
    epoll::add(&events, &timer, data, EventFlags::IN)?;
    Ok((events, timer))
}

/// Waits until the port can be used.
///
/// # Errors
/// Why it cannot, when the time is up or waiting will not help.
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
    let mut told = String::new();
    loop {
        monitor.drain();
        for _ in 0..EVENTS_MAX {
            if !matches!(device.context.next_event(), Ok(Some(_))) {
                break;
            }
        }
        let seen = see(&device.context, config.port, requests)
            .map_err(failed("the port cannot be asked what it is like"))?;
        let why = match evaluate(config, &seen, None) {
            Ok(usable) => return Ok((seen, usable)),
            Err(why) => why,
        };
        let left = deadline.since(clock());
        if left.is_zero() || !matches!(why, Unusable::Waiting(_)) {
            return Err(FabricError::Unusable(why.reason().to_owned()));
        }
        if told != why.reason() {
            why.reason().clone_into(&mut told);
            log::info!("waiting: {told}");
        }
        // Not all changes make an event.
        let timeout = Timespec::try_from(left.min(TICK)).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        let events = device
            .context
            .async_fd()
            .map_err(failed("it has no events"))?;
        let mut wakers = vec![
            PollFd::new(monitor, PollFlags::IN),
            PollFd::new(&events, PollFlags::IN),
        ];
        let give_up = config.give_up.iter();
        wakers.extend(give_up.map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut wakers, Some(&timeout)) {
            Ok(_) if wakers.get(2).is_some_and(|fd| !fd.revents().is_empty()) => {
                return Err(FabricError::Unusable(told));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(failed("waiting for the port failed")(e.into())),
        }
    }
}
