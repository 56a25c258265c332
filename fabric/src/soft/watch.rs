//! Looking at the underlay, and waiting for it.

use std::fs;
use std::net::IpAddr;
use std::time::Instant;

use rtnl::{Monitor, Requests};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::config::SoftConfig;
use super::underlay::{Seen, Unusable, Usable, evaluate};
use crate::port::FabricError;

/// A netlink error is a whole sentence already.
pub fn netlink(e: rtnl::Error) -> FabricError {
    FabricError::Unusable(e.to_string())
}

/// Looks at the underlay. An interface that there is not is no error.
///
/// # Errors
/// Those of the netlink socket.
pub fn see(name: &str, requests: &mut Requests) -> Result<Seen, rtnl::Error> {
    let link = match requests.link_by_name(name) {
        Ok(link) => link,
        Err(e) if e.is_not_found() => return Ok(Seen::default()),
        Err(e) => return Err(e),
    };
    let setting = |key: &str| {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/{key}");
        fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
    };
    Ok(Seen {
        addresses: requests.addresses(link.index)?,
        link: Some(link),
        ipv6_disabled: setting("disable_ipv6"),
        no_link_local: setting("addr_gen_mode"),
    })
}

/// What is usable of the underlay that was seen.
///
/// # Errors
/// Those of [`evaluate`].
pub fn evaluate_for(
    config: &SoftConfig,
    seen: &Seen,
    current: Option<IpAddr>,
) -> Result<Usable, Unusable> {
    evaluate(&config.underlay, seen, config.gid, config.link_mtu, current)
}

/// Waits until the underlay can be used.
///
/// # Errors
/// Why it cannot, when the time is up or waiting will not help.
pub fn wait_usable(
    config: &SoftConfig,
    monitor: &mut Monitor,
    requests: &mut Requests,
) -> Result<Usable, FabricError> {
    let deadline = Instant::now() + config.gid_wait;
    let mut told = String::new();
    loop {
        monitor.drain();
        let seen = see(&config.underlay, requests).map_err(netlink)?;
        let why = match evaluate_for(config, &seen, None) {
            Ok(usable) => return Ok(usable),
            Err(why) => why,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !matches!(why, Unusable::Waiting(_)) {
            return Err(FabricError::Unusable(why.reason().to_owned()));
        }
        // Most of what wakes this loop changes nothing here.
        if told != why.reason() {
            why.reason().clone_into(&mut told);
            log::info!("waiting: {told}");
        }
        let timeout = Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        let mut wakers = vec![PollFd::new(monitor, PollFlags::IN)];
        wakers.extend(
            config
                .give_up
                .iter()
                .map(|fd| PollFd::new(fd, PollFlags::IN)),
        );
        match poll(&mut wakers, Some(&timeout)) {
            Ok(_) if wakers.get(1).is_some_and(|fd| !fd.revents().is_empty()) => {
                return Err(FabricError::Unusable(told));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                return Err(FabricError::Os {
                    what: "waiting for the underlay failed".to_owned(),
                    source: e.into(),
                });
            }
        }
    }
}
