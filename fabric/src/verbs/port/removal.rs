//! What a port does without its device: giving it up, and opening it again.

use proto::Lid;
use rustix::event::epoll;

use super::VerbsPort;
use crate::kernel::clock;
use crate::membership::Memberships;
use crate::port::{FabricError, PortEvent};
use crate::verbs::device::Device;
use crate::verbs::watch::{Unusable, evaluate, see};

impl VerbsPort {
    /// The device is gone, or does not work: everything of it is given up.
    pub(super) fn lose_device(&mut self, why: &str) -> Vec<PortEvent> {
        let why = format!("{} is closed, to be opened again: {why}", self.name);
        log::debug!("{why}");
        if let Some((device, _)) = self.device.take()
            && let Ok(fd) = device.context.async_fd()
        {
            let _ = epoll::delete(&self.events, fd);
        }
        for (mgid, id) in self.groups.all() {
            // A queue pair that is attached cannot be destroyed.
            let mlid = self.mlid(mgid).unwrap_or(Lid(0));
            let pair = self.endpoints.get(&id.0).and_then(|e| e.pair.as_ref());
            if let Some(Err(e)) = pair.map(|pair| pair.qp.detach(mgid, mlid)) {
                log::debug!("{}: {mgid} cannot be left: {e}", self.name);
            }
        }
        for endpoint in self.endpoints.values_mut() {
            endpoint.pair = None;
        }
        self.memberships = Memberships::new(0);
        self.publish_endpoints();
        self.backoff.failed(clock());
        self.trouble = Some(Unusable::Waiting(why));
        vec![PortEvent::Removed]
    }

    /// Tries to open the device again, when it is time to.
    pub(super) fn reopen(&mut self) -> Vec<PortEvent> {
        if !self.backoff.may_try(clock()) {
            return Vec::new();
        }
        match self.try_reopen() {
            Ok(events) => {
                log::info!("{} is open again", self.name);
                self.backoff.succeeded();
                events
            }
            Err(e) => {
                self.device = None;
                for endpoint in self.endpoints.values_mut() {
                    endpoint.pair = None;
                }
                self.publish_endpoints();
                self.backoff.failed(clock());
                let why = Unusable::Waiting(e.to_string());
                if self.trouble.as_ref() != Some(&why) {
                    log::warn!("{} cannot be opened again yet: {e}", self.name);
                    self.trouble = Some(why);
                }
                Vec::new()
            }
        }
    }

    fn try_reopen(&mut self) -> Result<Vec<PortEvent>, FabricError> {
        let device = Device::open(&self.library, &self.config)?;
        let failed = |source| FabricError::Os {
            what: "the queue pairs cannot be made anew".to_owned(),
            source,
        };
        let seen = see(&device.context, self.config.port, &mut self.requests).map_err(failed)?;
        let evaluated = evaluate(&self.config, &seen, Some(self.usable.gid.gid));
        let mut events = self.follow_pkeys(&seen);
        for endpoint in self.endpoints.values_mut() {
            endpoint
                .make(&device, self.config.port, &self.pkeys)
                .map_err(failed)?;
        }
        self.hold(device).map_err(failed)?;
        let ids = self.endpoints.values().map(|e| e.id).collect();
        events.push(PortEvent::QpnChange(ids));
        match evaluated {
            Ok(now) => events.extend(self.follow(now)),
            Err(why) => events.extend(self.lose(why)),
        }
        self.join_all();
        self.hold_rdma_cm();
        self.publish_endpoints();
        Ok(events)
    }
}
