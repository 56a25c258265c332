//! Queries the underlay, and waits for it.

use std::fs;
use std::net::IpAddr;
use std::time::Instant;

use rtnl::{Monitor, Requests};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::config::SoftConfig;
use super::underlay::{Seen, Unusable, Usable, evaluate};
use crate::port::FabricError;

/// Converts a netlink error, whose text is a whole sentence.
pub fn netlink(e: rtnl::Error) -> FabricError {
    FabricError::Unusable(e.to_string())
}

/// Queries the underlay. A missing interface is not an error.
///
/// # Errors
/// Errors of the netlink socket.
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

/// Evaluates an underlay for a configuration.
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

/// Waits until the underlay is usable.
///
/// # Errors
/// The reason it is not usable, when the time is up or waiting does not help.
pub fn wait_usable(
    config: &SoftConfig,
    monitor: &mut Monitor,
    requests: &mut Requests,
) -> Result<Usable, FabricError> {
    let deadline = Instant::now() + config.gid_wait;
    let mut reported = String::new();
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
        // Most wake-ups change nothing here.
        if reported != why.reason() {
            why.reason().clone_into(&mut reported);
            log::info!("waiting: {reported}");
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
                return Err(FabricError::Unusable(reported));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                return Err(FabricError::Os {
                    what: "cannot wait for the underlay".to_owned(),
                    source: e.into(),
                });
            }
        }
    }
}
