//! Releases rdma_cm's reference to a removed device.

use std::time::Duration;

use proto::Instant;
use proto::backoff::Backoff;

use super::device::Device;
use super::ibv::cm::{CmAddress, Hold};
use super::presence::Presence;

/// Waiting time between attempts; rdma_cm may become available.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// See the module. Lives longer than the open device: a device that failed may be removed afterwards.
#[derive(Debug)]
pub struct Held {
    held: Option<(Hold, Presence)>,
    backoff: Backoff,
}

impl Default for Held {
    fn default() -> Held {
        Held {
            held: None,
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
        }
    }
}

impl Held {
    /// Takes a hold on a device by one of its addresses, unless there is one. Failures are reported
    /// where connections are opened, which need rdma_cm too.
    pub fn take(&mut self, now: Instant, device: &Device, presence: &Presence, address: CmAddress) {
        if self.held.is_some() || !self.backoff.may_try(now) {
            return;
        }
        let context = &device.context;
        match Hold::new(context.libraries(), context.name(), address) {
            Ok(hold) => {
                self.backoff.succeeded();
                self.held = Some((hold, presence.clone()));
            }
            Err(e) => {
                log::debug!("cannot bind rdma_cm to {address:?}: {e}");
                self.backoff.failed(now);
            }
        }
    }

    /// Releases a device that is being removed.
    pub fn let_go(&mut self, port: &str) {
        let over = self.held.take_if(|(_, presence)| presence.is_over());
        if let Some((hold, _)) = over
            && let Err(e) = hold.let_go()
        {
            log::error!(
                "{port}: cannot release the removed device; rdma_cm keeps it until ibtapd ends: {e}"
            );
        }
    }
}
