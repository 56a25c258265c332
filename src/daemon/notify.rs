//! Notifications to the service manager (sd_notify(3)).

use control::config;
use sd_notify::NotifyState;

use crate::interfaces::Interfaces;

/// Notifies that the daemon reads its configuration again; [`ready`] ends this state.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(e) => log::debug!("cannot read the clock for the service manager: {e}"),
    }
}

/// Notifies that the daemon is ready, with the number of its interfaces.
pub fn ready(interfaces: &Interfaces) {
    let served = config::interfaces(interfaces.ips().count(), interfaces.ethernets().count());
    notify(&[NotifyState::Ready, NotifyState::Status(&served)]);
}

/// Notifies that the daemon stops.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        log::debug!("cannot notify the service manager: {e}");
    }
}
