//! Closes a device that failed or was removed, and opens it again.

use std::sync::Arc;

use proto::{EndpointId, Gid, PKey, Services};
use rustix::event::epoll;

use super::{LONGEST_WAIT, VerbsPort};
use crate::kernel::clock;
use crate::membership::Memberships;
use crate::port::{FabricError, PortEvent};
use crate::verbs::connections::{cm_address, services};
use crate::verbs::device::Device;
use crate::verbs::groups::Groups;
use crate::verbs::ibv::LinkLayer;
use crate::verbs::ibv::cm::PortSpace;
use crate::verbs::port_state::{evaluate, see};
use crate::verbs::unusable::Unusable;

impl VerbsPort {
    /// Closes the device with all its objects.
    pub(super) fn lose_device(&mut self, why: &str) -> Vec<PortEvent> {
        let why = format!(
            "{} is closed until the device can be opened again: {why}",
            self.name
        );
        log::debug!("{why}");
        if let Some((device, _)) = self.device.take() {
            self.former_agent = Arc::downgrade(&device.first.cm_agent);
            if let Ok(fd) = device.first.context.async_fd() {
                let _ = epoll::delete(&self.events, fd);
            }
        }
        let attachments: Vec<(Gid, EndpointId)> = self.groups.all().collect();
        for (mgid, id) in attachments {
            // An attached queue pair cannot be destroyed.
            self.detach(id, mgid);
        }
        self.lose_administration();
        for endpoint in self.endpoints.values_mut() {
            endpoint.pairs.clear();
        }
        self.memberships = Memberships::new(0);
        self.publish_endpoints();
        let now = clock();
        // A device that fails soon after each opening is opened less and less often.
        if now >= self.backoff.due().after(LONGEST_WAIT) {
            self.backoff.succeeded();
        }
        self.backoff.failed(now);
        self.trouble = Some(Unusable::Waiting(why));
        vec![PortEvent::Removed]
    }

    /// Tries to open the device again, after the waiting time.
    pub(super) fn reopen(&mut self) -> Vec<PortEvent> {
        if !self.backoff.may_try(clock()) {
            return Vec::new();
        }
        match self.try_reopen() {
            Ok(events) => {
                log::info!("{} is open again", self.name);
                events
            }
            Err(e) => {
                self.device = None;
                for endpoint in self.endpoints.values_mut() {
                    endpoint.pairs.clear();
                }
                self.publish_endpoints();
                self.backoff.failed(clock());
                let why = Unusable::Waiting(e.to_string());
                if self.trouble.as_ref() != Some(&why) {
                    log::warn!("cannot open {} again yet: {e}", self.name);
                    self.trouble = Some(why);
                }
                Vec::new()
            }
        }
    }

    fn try_reopen(&mut self) -> Result<Vec<PortEvent>, FabricError> {
        // `services` would take the agent for that of another program.
        if self
            .former_agent
            .upgrade()
            .is_some_and(|a| a.is_registered())
        {
            let why = "a data thread has not closed the connections of the former device yet";
            return Err(FabricError::Unusable(why.to_owned()));
        }
        let device = Device::open(&self.library, &self.config)?;
        let failed = |source| FabricError::Os {
            what: "cannot restore the queue pairs".to_owned(),
            source,
        };
        let seen =
            see(&device.first.context, self.config.port, &mut self.requests).map_err(failed)?;
        let evaluated = evaluate(&self.config, &seen, Some(self.usable.gid.gid));
        let changes = self.follow_pkeys(&seen);
        self.unreported.extend(changes);
        for endpoint in self.endpoints.values_mut() {
            endpoint
                .make(&device, self.config.port, &self.pkeys)
                .map_err(failed)?;
        }
        self.follow_link_layer(seen.info.link_layer);
        self.hold(device).map_err(failed)?;
        self.open_administration()?;
        // Another program may manage connections now.
        self.services = services(&self.config, self.usable.link_layer);
        // `follow` may publish. A worker that sees a device without its endpoints drops their listeners.
        self.see_endpoints();
        let ids = self.endpoints.values().map(|e| e.id).collect();
        let mut events = std::mem::take(&mut self.unreported);
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

    /// Follows the link layer of a port that was switched while the device was away. Groups of the other link layer
    /// are joined again.
    fn follow_link_layer(&mut self, now: LinkLayer) {
        if std::mem::replace(&mut self.usable.link_layer, now) != now {
            self.groups = Groups::default();
            self.unreported.push(PortEvent::ClientReregister);
        }
    }

    /// Takes a hold on the device before the workers use rdma_cm.
    pub(super) fn hold_rdma_cm(&mut self) {
        let Some((device, presence)) = &self.device else {
            return;
        };
        let space = match self.services {
            Services::Any | Services::InfiniBand => return,
            Services::RdmaCm => PortSpace::Tcp,
            Services::RdmaCmInfiniBand => PortSpace::Ib,
        };
        if device.first.messages.is_some() && self.trouble.is_none() {
            let gid = &self.usable.gid;
            let scope = gid.netdev.unwrap_or(0);
            let address = cm_address(space, gid.gid, scope, PKey::DEFAULT, None);
            self.held.take(clock(), &device.first, presence, address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use proto::backoff::Backoff;
    use proto::{Instant, QKey};

    use super::*;
    use crate::namespace::Namespace;
    use crate::port::{Port, UdInit};
    use crate::umad::fake::{Fake as FakeUmad, active};
    use crate::verbs::config::VerbsConfig;
    use crate::verbs::held::Held;
    use crate::verbs::ibv::fake::Fake;
    use crate::verbs::port::joining::tests::on_ethernet;
    use crate::verbs::sys::{IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_MTU_1024};

    fn create_ud(port: &mut VerbsPort, pkey: u16) -> EndpointId {
        let init = UdInit {
            pkey: PKey::new(pkey),
            qkey: QKey::IPOIB_DEFAULT,
            qpn: None,
        };
        port.create_ud(init).unwrap().id
    }

    /// Closes the device, to be opened again by the next call of [`Port::process`].
    fn close(port: &mut VerbsPort) {
        port.backoff = Backoff::new(Duration::ZERO, Duration::ZERO);
        port.shared[0].complain("for a test");
        assert_eq!(port.process(), [PortEvent::Removed]);
    }

    fn another_table_while_the_device_fails() {
        let _ns = Namespace::loopback("reopen");
        let fake = Arc::new(Fake::default());
        fake.device().pkeys = vec![0xffff, 0x8001];
        fake.queue().takes = usize::MAX;
        let mut port = VerbsPort::open_with(fake.clone(), VerbsConfig::new("fake", 1)).unwrap();
        let id = create_ud(&mut port, 0x8001);
        close(&mut port);
        fake.device().pkeys = vec![0xffff];
        fake.device().refuses_queue_pairs = true;
        assert_eq!(port.process(), []);
        fake.device().refuses_queue_pairs = false;
        let events = port.process();
        let expected = [
            PortEvent::PKeyChange(vec![id]),
            PortEvent::QpnChange(vec![id]),
            PortEvent::Active,
        ];
        assert_eq!(events, expected);
        assert_eq!(port.endpoint_pkey(id), None);
    }

    #[test]
    fn a_failed_attempt_to_reopen_loses_no_event() {
        let test = another_table_while_the_device_fails;
        thread::spawn(test).join().unwrap();
    }

    /// The last step before the port is complete uses rdma_cm.
    fn another_mtu_while_the_device_is_away() {
        let (_ns, fake, mut port) = on_ethernet("another-mtu");
        let id = create_ud(&mut port, 0xffff);
        close(&mut port);
        let shared = Arc::clone(&port.shared[0]);
        let (sender, seen) = mpsc::channel();
        fake.device().at_rdma_cm = Some(Box::new(move || {
            let table = shared.table();
            let complete = table.device.is_none() || table.endpoints.get(id).is_some();
            sender.send(complete).unwrap();
        }));
        fake.device().active_mtu = IBV_MTU_1024;
        port.held = Held::default();
        assert_eq!(port.process().len(), 3);
        assert_eq!(seen.try_recv(), Ok(true));
    }

    #[test]
    fn workers_see_no_device_without_its_endpoints() {
        let test = another_mtu_while_the_device_is_away;
        thread::spawn(test).join().unwrap();
    }

    /// The port is switched from Ethernet to InfiniBand while the device is away. The test's machine has no umad.
    fn another_link_layer() {
        let (_ns, fake, mut port) = on_ethernet("link-layer");
        let id = create_ud(&mut port, 0xffff);
        let group: Gid = "ff12:401b:ffff::1".parse().unwrap();
        port.change_groups(id, &[group], &[]).unwrap();
        close(&mut port);
        fake.device().link_layer = IBV_LINK_LAYER_INFINIBAND;
        assert_eq!(port.process(), []);
        assert!(!port.is_ethernet() && port.device.is_none());
        assert_eq!(port.groups.len(), 0);
        fake.device().link_layer = IBV_LINK_LAYER_ETHERNET;
        let events = port.process();
        assert!(events.contains(&PortEvent::ClientReregister), "{events:?}");
    }

    #[test]
    fn a_device_comes_back_with_another_link_layer() {
        thread::spawn(another_link_layer).join().unwrap();
    }

    /// How long the port waits after a failure now.
    fn wait_after_failure(port: &mut VerbsPort) -> Duration {
        let now = clock();
        port.shared[0].complain("for a test");
        assert_eq!(port.process(), [PortEvent::Removed]);
        port.backoff.due().since(now)
    }

    /// The device can be opened each time, and fails at once.
    fn failing_at_once() {
        let (_ns, _fake, mut port) = on_ethernet("fails-at-once");
        let first = Duration::from_millis(20);
        port.backoff = Backoff::new(first, LONGEST_WAIT);
        for factor in [1, 2, 4, 8] {
            assert!(wait_after_failure(&mut port) >= first * factor);
            while port.device.is_none() {
                thread::sleep(Duration::from_millis(5));
                port.process();
            }
        }
        // The device has been open since the machine was started.
        let first = Duration::from_secs(1);
        port.backoff = Backoff::new(first, LONGEST_WAIT);
        (0..3).for_each(|_| port.backoff.failed(Instant(0)));
        assert!(wait_after_failure(&mut port) < first * 4);
    }

    #[test]
    fn a_device_that_fails_after_each_opening_is_opened_less_and_less_often() {
        thread::spawn(failing_at_once).join().unwrap();
    }

    /// The agent of a data thread that still uses the former device is not that of another program.
    fn own_agent() {
        let (_ns, _fake, mut port) = on_ethernet("own-agent");
        let umad = FakeUmad::new(active(Gid([1; 16])), |_| Vec::new());
        let (device, _) = port.device.as_ref().unwrap();
        let held = device.first.cm_agent.register_over(umad.open().unwrap());
        close(&mut port);
        assert_eq!(port.process(), []);
        let why = port.attributes().state_reason.unwrap();
        assert!(why.contains("data thread"), "{why}");
        drop(held);
        assert!(port.process().contains(&PortEvent::Active));
    }

    #[test]
    fn a_port_waits_for_its_own_agent_of_connection_management() {
        thread::spawn(own_agent).join().unwrap();
    }

    fn two_failed_queries() {
        let (_ns, fake, mut port) = on_ethernet("two-queries");
        create_ud(&mut port, 0xffff);
        fake.device().fails_queries = true;
        port.looks = u8::MAX;
        let mut events = Vec::new();
        while events.is_empty() {
            thread::sleep(Duration::from_millis(10));
            events = port.process();
        }
        assert_eq!(events, [PortEvent::Removed]);
    }

    /// A queue pair and the port are queried at the same tick.
    #[test]
    fn a_lost_device_is_reported_once() {
        thread::spawn(two_failed_queries).join().unwrap();
    }
}
