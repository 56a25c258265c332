//! Ports and devices come into service, and go out of it.

use control::api::Happening;
use control::config::IpoibConfig;

use super::{Daemon, DaemonError, Payload, PortSpec};
use crate::fdstore;
use crate::interface::InterfaceId;
use crate::interface::{Interface, InterfaceError, Names, TapSources, UnservedTap};
use crate::ip::{Ip, IpContext};
use crate::port::{PortId, PortRuntime};

impl Daemon {
    /// Opens a port and makes its devices.
    pub(crate) fn add_port(&mut self, spec: PortSpec) -> Result<PortId, DaemonError> {
        let port = fabric::open(spec.fabric)?;
        let mut runtime = PortRuntime::start(
            spec.name,
            port,
            spec.settings,
            &self.reports.sender,
            &self.reports.wake,
        )
        .map_err(|e| DaemonError::Os("cannot start a data thread", e))?;
        runtime.management_settings = spec.management;
        self.streams.port_opened(&runtime);
        let at = self.ports.add(runtime);
        for device in spec.devices {
            self.add_device(at, &device)?;
        }
        for vnic in spec.vnics {
            self.add_vnic(at, &vnic)?;
        }
        if self.ports[at].management_settings.vnic_create {
            self.manage_port(at);
        }
        Ok(at)
    }

    /// Makes a device on a port, as a child if its parent is named.
    pub(crate) fn add_device(&mut self, at: PortId, spec: &IpoibConfig) -> Result<(), DaemonError> {
        let parent = match &spec.parent {
            Some(name) => Some(self.configured_parent(at, spec, name)?),
            None => None,
        };
        let id = self.bring_in(at, spec, parent, None)?;
        if parent.is_none() {
            self.look_for_children(id);
        }
        Ok(())
    }

    /// The device of the same port that the configuration calls so.
    fn configured_parent(
        &self,
        at: PortId,
        child: &IpoibConfig,
        name: &str,
    ) -> Result<InterfaceId, DaemonError> {
        let is_parent = |ip: &Ip| ip.parent.is_none() && ip.spec.name == name;
        let mut on_port = self.interfaces.ips().filter(|(i, _)| i.port == at);
        let parent = on_port.find(|(_, ip)| is_parent(ip)).map(|(i, _)| i.id);
        parent.ok_or_else(|| no_parent(child))
    }

    /// Puts a device into service on a port: a child of `parent`, with the interface `found`, if
    /// these are given.
    pub(super) fn bring_in(
        &mut self,
        at: PortId,
        spec: &IpoibConfig,
        parent: Option<InterfaceId>,
        found: Option<UnservedTap<'_>>,
    ) -> Result<InterfaceId, DaemonError> {
        let id = self.interfaces.new_id();
        let failed = |source| DaemonError::Device {
            name: spec.name.clone(),
            source,
        };
        self.follow_pkeys(at, Some(spec.pkey))
            .map_err(|why| failed(InterfaceError::Pkeys(why)))?;
        let made = self.make_device_at(id, at, spec, parent, found);
        let (mut interface, ip) = match made {
            Ok(made) => made,
            Err(e) => {
                self.unfollow_pkeys(at);
                return Err(failed(e));
            }
        };
        let missing = self.ip_misses(&interface, &ip);
        interface.set_carrier(missing.is_none());
        log::info!(
            "{}: serving on {} mode={} qpn={} pkey={} gid={} mtu={} queues={}",
            interface.name,
            self.ports[at].port.attributes().name,
            ip.mode_word(),
            ip.link.fabric.endpoint.qpn,
            ip.spec.pkey,
            ip.link.address.gid(),
            interface.mtu,
            interface.queues.len()
        );
        if let Some(why) = missing {
            log::info!("{}: no carrier: {why}", interface.name);
        }
        let created = Happening::Created {
            qpn: ip.link.fabric.endpoint.qpn,
            gid: ip.link.address.gid(),
        };
        let waits = ip.link.fabric.endpoint.pkey.is_none();
        let pkey = ip.spec.pkey;
        self.insert(interface, Payload::Ip(Box::new(ip)));
        // One that went meanwhile has had its P_Key taken from the table, and that of this one, which
        // nobody in service asked for yet.
        self.unfollow_pkeys(at);
        self.tell(id, created);
        if waits {
            self.tell(id, Happening::PkeyMissing { pkey });
        }
        self.tell_child_added(id);
        self.reread(id);
        self.read_coalesce(id);
        // Among what was announced meanwhile may have been the end of its parent, which did not take
        // it along: it was no child yet.
        if parent.is_some_and(|parent| !self.interfaces.has(parent)) {
            self.remove_child(id);
            return Err(no_parent(spec));
        }
        self.sync_siblings();
        Ok(id)
    }

    /// Puts an interface that was made into service. What was announced while it was made is older than what
    /// is read now, and would show states that have passed: the first MAC, the first MTU, down before up.
    pub(super) fn insert(&mut self, mut interface: Interface, payload: Payload) {
        for notice in self.host.monitor.notices() {
            self.netlink_event(notice);
        }
        // What is drained here wakes the control loop no more.
        self.tick();
        self.sync_changed_groups();
        interface.netns = interface.namespace.map(|there| Names::read().of(&there));
        self.interfaces.add(interface, payload);
    }

    fn make_device_at(
        &mut self,
        id: InterfaceId,
        at: PortId,
        spec: &IpoibConfig,
        parent: Option<InterfaceId>,
        found: Option<UnservedTap<'_>>,
    ) -> Result<(Interface, Ip), InterfaceError> {
        let namespace = self.namespace_for(spec, parent)?;
        let left = match found {
            Some(_) => None,
            None => self.take_left(at, spec, parent, namespace.as_ref()),
        };
        let parent = parent.and_then(|id| self.interfaces.get(id));
        let parent = parent.map(|interface| (interface.id, interface.name.clone()));
        let port = &mut self.ports[at];
        let mut site = IpContext {
            parent,
            tap: TapSources {
                found,
                netlink: &mut self.host.netlink,
                inherited: &mut self.host.inherited,
                namespace,
                left,
            },
            port_id: at,
            kernel_peers: port.kernel_peers,
            threads: &port.mailboxes(),
            port: &mut *port.port,
        };
        Ip::create(id, spec, &mut site)
    }

    /// Closes an interface whose TAP is gone, or is to go, and its children with their interfaces.
    pub(crate) fn forget(&mut self, id: InterfaceId) {
        self.remove_children(id);
        let Some((interface, payload)) = self.interfaces.both(id) else {
            return;
        };
        let (at, is_vnic) = (interface.port, payload.ethernet().is_some());
        let name = &interface.name;
        log::info!("{name}: out of service, its endpoint is closed");
        fdstore::forget(payload.config());
        self.tell_child_removed(id);
        self.close(id);
        if is_vnic {
            self.sync_vnic_siblings();
        }
        self.unfollow_pkeys(at);
        if is_vnic {
            self.vnic_gone(at);
        }
    }

    /// Closes all interfaces on a port.
    pub(crate) fn forget_all_on(&mut self, at: PortId) {
        let on_port = self.interfaces.iter().filter(|(i, _)| i.port == at);
        for id in on_port.map(|(i, _)| i.id).collect::<Vec<_>>() {
            self.forget(id);
        }
    }

    /// Closes an interface. Its TAP stays if it is persistent or a service manager keeps its queues.
    pub(super) fn close(&mut self, id: InterfaceId) {
        self.close_vnic_endpoint(id);
        self.tell(id, Happening::Gone);
        self.streams.interface_closed(id.link());
        // Their lanes hold the TAP open.
        self.end_vlans(id);
        if let Some((interface, Payload::Ip(ip))) = self.interfaces.remove(id) {
            let port = &mut self.ports[interface.port];
            ip.link.fabric.close(&interface.name, port);
        }
    }
}

/// The parent of a child is not there.
pub(super) fn no_parent(child: &IpoibConfig) -> DaemonError {
    DaemonError::Device {
        name: child.name.clone(),
        source: InterfaceError::NoParent(child.parent.clone().unwrap_or_default()),
    }
}
