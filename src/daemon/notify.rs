//! Notifications to the service manager (sd_notify(3)), and its watchdog.

use std::time::{Duration, Instant};

use control::config;
use sd_notify::NotifyState;

use crate::interfaces::Interfaces;
use crate::port::Ports;

/// Notifies that the daemon reads its configuration again; [`ready`] ends this state.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(e) => log::debug!("cannot read the clock for a notification to systemd: {e}"),
    }
}

/// Notifies that the daemon is ready, with the number of its interfaces.
pub fn ready(interfaces: &Interfaces) {
    let served = config::interfaces(interfaces.ips().count(), interfaces.ethernets().count());
    notify(&[NotifyState::Ready, NotifyState::Status(&served)]);
}

/// Time until the data threads are asked again if one has not answered.
const RETRY: Duration = Duration::from_secs(1);

/// The watchdog of the service manager (systemd.service(5), `WatchdogSec`): without a notification in its time, the
/// manager restarts the daemon.
pub struct Watchdog {
    interval: Duration,
    next: Instant,
    is_well: bool,
}

impl Watchdog {
    /// The watchdog, if the service manager has one for this process.
    pub fn of_manager() -> Option<Watchdog> {
        sd_notify::watchdog_enabled().map(|limit| Watchdog {
            // sd_watchdog_enabled(3) recommends half of the time.
            interval: limit / 2,
            next: Instant::now(),
            is_well: true,
        })
    }

    /// The time until [`Watchdog::turn`] has work.
    pub fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// If it is time, notifies that the daemon works, unless a data thread of a port does not answer.
    pub fn turn(&mut self, ports: &Ports) {
        if !self.wait().is_zero() {
            return;
        }
        let silent = ports.values().find(|port| !port.answers());
        let silent = silent.map(|port| port.name.to_string());
        match &silent {
            None => notify(&[NotifyState::Watchdog]),
            Some(port) if self.is_well => log::error!(
                "a data thread of {port} does not answer; if it stays silent, systemd restarts ibtapd"
            ),
            Some(_) => {}
        }
        self.is_well = silent.is_none();
        self.next = Instant::now() + if self.is_well { self.interval } else { RETRY };
    }
}

/// Notifies that the daemon stops.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        log::debug!("cannot notify systemd: {e}");
    }
}
