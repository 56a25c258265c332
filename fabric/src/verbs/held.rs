//! A port's hand on what rdma_cm has of its device, so that the device can be removed.

use std::net::SocketAddr;
use std::time::Duration;

use proto::Instant;
use proto::backoff::Backoff;

use super::device::Device;
use super::ibv::cm::Hold;
use super::presence::Presence;

/// Between two attempts: rdma_cm may yet be there.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// See the module. It outlives the device's being closed: one that failed may be removed afterwards.
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
    /// Takes hold of a device, by an address that it has, unless that was done. Why it cannot be
    /// done is said where connections are made, which would need it no less.
    pub fn take(
        &mut self,
        now: Instant,
        device: &Device,
        presence: &Presence,
        address: SocketAddr,
    ) {
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
                log::debug!("rdma_cm cannot be bound to {address}: {e}");
                self.backoff.failed(now);
            }
        }
    }

    /// Lets go of a device that is being removed.
    pub fn let_go(&mut self, port: &str) {
        let over = self.held.take_if(|(_, presence)| presence.is_over());
        if let Some((hold, _)) = over
            && let Err(e) = hold.let_go()
        {
            log::error!("{port}: rdma_cm keeps the removed device until this program ends: {e}");
        }
    }
}
