//! The port on an InfiniBand subnet: the subnet administrator, and changes of the subnet.

use proto::{PKey, Services};

use super::VerbsPort;
use crate::administration::{Administration, Manager, UmadCarrier};
use crate::group::Joined;
use crate::kernel::clock;
use crate::port::{FabricError, PortEvent};
use crate::subnet::{LocalPort, SubnetEvent};
use crate::verbs::groups::Groups;
use crate::verbs::kernel_groups::{self, KernelGroups};
use crate::verbs::port_state::Usable;
use crate::verbs::sysfs;

/// Changes of the subnet since they were handled last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SubnetChange {
    /// Paths may have changed.
    pub paths: bool,
    /// The subnet administrator has no membership of the port any more.
    pub memberships: bool,
    /// The subnet administrator has forgotten some memberships, which count as lost already.
    pub forgotten: bool,
}

impl SubnetChange {
    /// The subnet manager requests registrations again, or the port has another LID.
    pub const ALL: SubnetChange = SubnetChange {
        paths: true,
        memberships: true,
        forgotten: false,
    };
}

impl VerbsPort {
    fn local(&self) -> LocalPort {
        LocalPort {
            gid: self.usable.gid.gid,
            mtu: self.usable.active_mtu,
            kernel_pkeys: self.kernel_interfaces.iter().map(|i| i.pkey).collect(),
        }
    }

    /// Opens umad on an InfiniBand port.
    ///
    /// # Errors
    /// As [`UmadCarrier::open`].
    pub(super) fn open_administration(&mut self) -> Result<(), FabricError> {
        if self.is_ethernet() {
            return Ok(());
        }
        let (device, port) = (&self.config.device, self.config.port);
        let carrier = Box::new(UmadCarrier::open(device, port)?);
        let administration = Administration::over(carrier, self.local())?;
        for fd in administration.fds() {
            super::waiting::add(&self.events, fd).map_err(|source| FabricError::Os {
                what: format!("{}: cannot wait for management datagrams", self.name),
                source,
            })?;
        }
        self.administration = Some(administration);
        self.follow_manager();
        Ok(())
    }

    /// Closes umad, because the device is gone. Endpoints join their groups again when the device is back, also
    /// those whose requests were not answered.
    pub(super) fn lose_administration(&mut self) {
        let Some(administration) = self.administration.take() else {
            return;
        };
        for fd in administration.fds() {
            super::waiting::remove(&self.events, fd);
        }
        drop(self.requested.take());
        self.kernel_groups.clear();
        self.groups = Groups::default();
        self.subnet_change = SubnetChange::ALL;
    }

    /// Logs once that the kernel's `ib_cm` was loaded while we manage connections.
    pub(super) fn watch_kernel_cm(&mut self) {
        if self.services != Services::InfiniBand {
            return;
        }
        let out = sysfs::is_kernel_cm_shut_out(&self.config.device, self.config.port);
        if out && !std::mem::replace(&mut self.kernel_cm_shut_out, out) {
            log::warn!(
                "{}: ib_cm was loaded, but ibtapd manages the connections of the port: ib_ipoib in connected \
                 mode and programs with rdma_cm cannot connect; set cm = \"rdma_cm\", restart ibtapd, and \
                 load ib_cm again",
                self.name
            );
        }
        self.kernel_cm_shut_out = out;
    }

    /// Follows the LID of the subnet manager.
    fn follow_manager(&mut self) {
        let usable = &self.usable;
        let manager = usable.sm_lid.map(|lid| Manager {
            lid,
            sl: usable.sm_sl,
            pkey_index: self.pkeys.management().index,
        });
        // While the port is down, nothing reaches the manager.
        let manager = manager.filter(|_| self.trouble.is_none());
        if let Some(administration) = &mut self.administration {
            administration.carrier.set_manager(manager);
        }
    }

    /// Notes the changes of the subnet between two states of the port.
    pub(super) fn note_subnet_change(&mut self, before: &Usable, was_down: bool) {
        let now = &self.usable;
        // Records of the subnet administrator have the port's GID.
        let other_gid = before.gid.gid != now.gid.gid;
        if was_down || before.lid != now.lid || other_gid {
            self.subnet_change = SubnetChange::ALL;
        } else if before.sm_lid != now.sm_lid {
            self.subnet_change.paths = true;
        }
    }

    /// Looks for interfaces of the kernel's IPoIB on the port.
    pub(super) fn look_for_kernel_interfaces(&mut self) {
        if self.is_ethernet() {
            return;
        }
        let found = kernel_groups::interfaces(self.usable.gid.gid);
        if found == self.kernel_interfaces {
            return;
        }
        for interface in &found {
            log::info!(
                "{}: the kernel's IPoIB has {} on this port: groups of partition {} are joined by rdma_cm",
                self.name,
                interface.name,
                interface.pkey
            );
        }
        self.kernel_interfaces = found;
    }

    /// The memberships beside the kernel's interface in a partition; `None` without an interface, or without an address.
    pub(super) fn beside_kernel(&mut self, pkey: PKey) -> Option<&mut KernelGroups> {
        let pkey = pkey.full();
        let mut interfaces = self.kernel_interfaces.iter();
        let interface = interfaces.find(|interface| interface.pkey == pkey)?;
        if !self.kernel_groups.contains_key(&pkey.get()) {
            let link = self.requests.link_by_name(&interface.name).ok()?;
            let addresses = self.requests.addresses(link.index).ok()?;
            let address = addresses.iter().find(|a| a.ip.is_ipv4() && a.is_usable())?;
            let device = &self.config.device;
            let opened =
                KernelGroups::open(&self.library, device, address.ip, pkey).and_then(|groups| {
                    super::waiting::add(&self.events, groups.fd()?)?;
                    Ok(groups)
                });
            match opened {
                Ok(groups) => self.kernel_groups.insert(pkey.get(), groups),
                Err(e) => {
                    log::debug!(
                        "{}: cannot join groups beside {}: {e}",
                        self.name,
                        interface.name
                    );
                    return None;
                }
            };
        }
        self.kernel_groups.get_mut(&pkey.get())
    }

    /// Follows the answers of rdma_cm.
    fn take_kernel_groups(&mut self) -> Vec<PortEvent> {
        let now = clock();
        let mut events = Vec::new();
        let mut answers = Vec::new();
        for groups in self.kernel_groups.values_mut() {
            match groups.take(now) {
                Ok(some) => answers.extend(some),
                Err(e) => log::warn!("{}: cannot read the answers of rdma_cm: {e}", self.name),
            }
        }
        for (mgid, error) in answers {
            let refused = |why| Joined::Refused(format!("rdma_cm refused the group: {why}"));
            if let Some(why) = error {
                events.extend(self.group_answered(mgid, &refused(why)));
                continue;
            }
            // The members of a group that the kernel had lost are attached still.
            let member = self.groups.members(mgid).first().copied();
            let user = self.requested.any(mgid).or(member);
            let endpoint = user.and_then(|id| self.endpoints.get(&id.0));
            if let (Some(endpoint), Some(administration)) = (endpoint, &mut self.administration) {
                let (pkey, qkey) = (endpoint.partition, endpoint.qkey);
                administration.subnet.adopt(now, mgid, pkey, qkey);
            }
        }
        events
    }

    /// Handles changes of the subnet, answers of the subnet administrator, and requests of the workers.
    pub(super) fn process_subnet(&mut self) -> Vec<PortEvent> {
        if self.administration.is_none() {
            return Vec::new();
        }
        let now = clock();
        let mut events = self.handle_subnet_change();
        events.extend(self.take_kernel_groups());
        self.follow_manager();
        let Some(administration) = &mut self.administration else {
            return events;
        };
        let mut paths = Vec::new();
        let wanted = self.shared.iter().map(|s| s.destinations.take());
        for destination in wanted.flatten() {
            let path = administration.subnet.resolve(now, destination);
            paths.extend(path.map(|path| (destination, path)));
        }
        let processed = administration.process(now);
        match processed {
            Err(e) => events.extend(self.lose_device(&e.to_string())),
            Ok(news) => {
                for event in news {
                    match event {
                        SubnetEvent::Group { mgid, joined } => {
                            events.extend(self.group_answered(mgid, &joined));
                        }
                        SubnetEvent::Path { destination, path } => paths.push((destination, path)),
                        SubnetEvent::Forgotten => self.subnet_change.forgotten = true,
                    }
                }
            }
        }
        // To all workers: others may need the path next, and the first one learns the GIDs of senders.
        if !paths.is_empty() {
            for shared in &self.shared {
                shared.paths.send(paths.iter().cloned());
            }
        }
        events
    }

    fn handle_subnet_change(&mut self) -> Vec<PortEvent> {
        let change = std::mem::take(&mut self.subnet_change);
        let local = self.local();
        let Some(administration) = &mut self.administration else {
            return Vec::new();
        };
        administration.set_port(clock(), local);
        if change == SubnetChange::default() {
            return Vec::new();
        }
        administration.subnet.changed(clock(), change.memberships);
        self.flushes += 1;
        self.publish();
        if !change.memberships && !change.forgotten {
            return Vec::new();
        }
        if let Some(administration) = &mut self.administration {
            administration.subscribe_soon(clock());
        }
        vec![PortEvent::ClientReregister]
    }
}
