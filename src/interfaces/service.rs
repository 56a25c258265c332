//! Adds and removes ports and interfaces.

use control::api::Happening;
use control::config::IpoibConfig;

use crate::fdstore;
use crate::interface::{Interface, InterfaceError, InterfaceId, Names, TapSources, UnservedTap};
use crate::interfaces::{Context, DaemonError, Interfaces, Payload, children, management, vlans};
use crate::ip::{Ip, IpContext};
use crate::port::{PortId, PortRuntime, PortSpec};

impl Interfaces {
    /// Opens a port, without its interfaces. The port takes over the receiving sockets of the former daemon.
    pub fn add_port(
        &mut self,
        cx: &mut Context,
        mut spec: PortSpec,
    ) -> Result<PortId, DaemonError> {
        let former = cx.host.inherited.sockets_of(&spec.name);
        // They are stored again when the port is open.
        fdstore::forget_sockets(&spec.name, former.len());
        spec.fabric.set_former(former);
        let port = fabric::open(spec.fabric)?;
        let mut runtime = PortRuntime::start(
            spec.name,
            port,
            spec.settings,
            &cx.reports.sender,
            &cx.reports.wake,
        )
        .map_err(|e| DaemonError::Os("cannot start a data thread", e))?;
        runtime.store_sockets();
        runtime.management_settings = spec.management;
        runtime.allow = spec.allow;
        if runtime.allow.is_some() {
            runtime.send_allowed();
        }
        let at = cx.ports.add(runtime);
        if cx.ports[at].management_settings.vnic_create {
            management::manage_port(self, cx, at);
        }
        Ok(at)
    }

    /// Closes a port and all interfaces on it.
    pub fn remove_port(&mut self, cx: &mut Context, at: PortId) {
        self.forget_all_on(cx, at);
        self.managements.remove(&at);
        if let Some(mut port) = cx.ports.remove(at) {
            port.forget_sockets();
            cx.managers.port_closed(&port.name);
            port.stop();
        }
    }

    /// Creates an IPoIB interface on a port, as a child if a parent is configured.
    pub fn add_ipoib(
        &mut self,
        cx: &mut Context,
        at: PortId,
        spec: &IpoibConfig,
    ) -> Result<(), DaemonError> {
        let parent = match &spec.parent {
            Some(name) => Some(self.configured_parent(at, spec, name)?),
            None => None,
        };
        let id = self.serve_ipoib(cx, at, spec, parent, None)?;
        if parent.is_none() {
            self.look_around(cx, |interface, _| interface.id == id);
        }
        Ok(())
    }

    /// The parent of a child: the interface with this configured name on the same port.
    fn configured_parent(
        &self,
        at: PortId,
        child: &IpoibConfig,
        name: &str,
    ) -> Result<InterfaceId, DaemonError> {
        let is_parent = |ip: &Ip| ip.parent.is_none() && ip.spec.name == name;
        let mut on_port = self.ips().filter(|(i, _)| i.port == at);
        let parent = on_port.find(|(_, ip)| is_parent(ip)).map(|(i, _)| i.id);
        parent.ok_or_else(|| no_parent(child))
    }

    /// Creates an IPoIB interface and starts to serve it: as a child of `parent`, and with the TAP `found`,
    /// if given.
    pub fn serve_ipoib(
        &mut self,
        cx: &mut Context,
        at: PortId,
        spec: &IpoibConfig,
        parent: Option<InterfaceId>,
        found: Option<UnservedTap<'_>>,
    ) -> Result<InterfaceId, DaemonError> {
        let id = self.new_id();
        let failed = |source| DaemonError::Interface {
            name: spec.name.clone(),
            source,
        };
        self.follow_pkeys(cx, at, Some(spec.pkey))
            .map_err(|why| failed(InterfaceError::Pkeys(why)))?;
        let made = self.make_ipoib(cx, id, at, spec, parent, found);
        let (mut interface, ip) = match made {
            Ok(made) => made,
            Err(e) => {
                self.unfollow_pkeys(cx, at);
                return Err(failed(e));
            }
        };
        let missing = self.ip_no_carrier(&cx.ports, &interface, &ip);
        let kept = interface.has_left_carrier();
        if kept {
            // The carrier does not change, so the kernel keeps the neighbours that the former daemon knew.
            cx.pending.forgotten.insert(id);
        }
        let waits = kept && self.ip_awaits_carrier(&cx.ports, &interface, &ip);
        if !waits {
            interface.set_carrier(missing.is_none());
        }
        log::info!(
            "{}: serving on {} mode={} qpn={} pkey={} gid={} mtu={} queues={}",
            interface.name,
            cx.ports[at].port.attributes().name,
            ip.mode_word(),
            ip.link.fabric.endpoint.qpn,
            ip.spec.pkey,
            ip.link.address.gid(),
            interface.mtu,
            interface.queues.len()
        );
        if let Some(why) = missing.filter(|_| !waits) {
            log::info!("{}: no carrier: {why}", interface.name);
        }
        let created = Happening::Created {
            qpn: ip.link.fabric.endpoint.qpn,
            gid: ip.link.address.gid(),
        };
        let has_no_entry = ip.link.fabric.endpoint.pkey.is_none();
        let pkey = ip.spec.pkey;
        self.insert(cx, interface, Payload::Ip(Box::new(ip)));
        // An interface that was removed meanwhile removed its P_Key from the table, and may have removed
        // that of the new interface, which was not in service yet.
        self.unfollow_pkeys(cx, at);
        self.notify(cx, id, created);
        if has_no_entry {
            self.notify(cx, id, Happening::PkeyMissing { pkey });
        }
        children::notify_added(self, cx, id);
        self.reread(cx, id);
        self.read_stacking(cx);
        // A persistent TAP keeps what `ethtool -C` has set. The configured value comes first.
        if cx.ports[at].moderation.rx_frames == 0 {
            self.read_coalesce(cx, id);
        }
        // The parent may have been removed meanwhile, without this child, which was not in service yet.
        if parent.is_some_and(|parent| !self.has(parent)) {
            children::remove_child(self, cx, id);
            return Err(no_parent(spec));
        }
        self.sync_siblings(&cx.ports);
        Ok(id)
    }

    /// Adds a new interface. Older notifications are handled before that: they would show former states
    /// (the first MAC, the first MTU, down before up).
    pub fn insert(&mut self, cx: &mut Context, mut interface: Interface, payload: Payload) {
        for notice in cx.host.monitor.notices() {
            self.netlink_event(cx, notice);
        }
        // The notifications handled here do not wake the control loop again.
        self.tick(cx);
        self.sync_changed_groups(cx);
        interface.netns = interface.namespace.map(|there| Names::read().of(&there));
        self.add(interface, payload);
    }

    fn make_ipoib(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        at: PortId,
        spec: &IpoibConfig,
        parent: Option<InterfaceId>,
        found: Option<UnservedTap<'_>>,
    ) -> Result<(Interface, Ip), InterfaceError> {
        let namespace = self.namespace_for(cx, spec, parent)?;
        let left = match found {
            Some(_) => None,
            None => children::take_left(self, cx, at, spec, parent, namespace.as_ref()),
        };
        let parent = parent.and_then(|id| self.get(id));
        let parent = parent.map(|interface| (interface.id, interface.name.clone()));
        let port = &mut cx.ports[at];
        let mut site = IpContext {
            parent,
            tap: TapSources {
                found,
                netlink: &mut cx.host.netlink,
                inherited: &mut cx.host.inherited,
                patience: &mut cx.host.patience,
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

    /// Closes an interface whose TAP is gone or will be removed. Removes its children and their TAPs.
    pub fn forget(&mut self, cx: &mut Context, id: InterfaceId) {
        children::remove_children(self, cx, id);
        let Some((interface, payload)) = self.both(id) else {
            return;
        };
        let (at, is_vnic) = (interface.port, payload.ethernet().is_some());
        let name = &interface.name;
        log::info!("{name}: out of service");
        let label = fdstore::label(payload.config());
        children::notify_removed(self, cx, id);
        self.close(cx, id);
        self.remove_stored(&label);
        if is_vnic {
            self.sync_siblings(&cx.ports);
        }
        self.unfollow_pkeys(cx, at);
        if is_vnic {
            management::vnic_gone(self, cx, at);
        }
    }

    /// Removes the queues of a closed interface from the service manager's store. With them go the queues of
    /// others with its label, such as children in other containers: those are stored again.
    pub fn remove_stored(&self, label: &str) {
        fdstore::remove(label);
        let all = self.iter().map(|(i, payload)| (payload.config(), &i.tap));
        let alike = all.filter(|(config, _)| fdstore::label(config) == label);
        alike.for_each(|(config, tap)| fdstore::keep(config, tap));
    }

    /// Closes all interfaces on a port.
    pub fn forget_all_on(&mut self, cx: &mut Context, at: PortId) {
        let on_port = self.iter().filter(|(i, _)| i.port == at);
        for id in on_port.map(|(i, _)| i.id).collect::<Vec<_>>() {
            self.forget(cx, id);
        }
    }

    /// Closes an interface. The TAP stays if it is persistent or a service manager keeps its queues.
    pub fn close(&mut self, cx: &mut Context, id: InterfaceId) {
        self.close_vnic_endpoint(cx, id);
        self.notify(cx, id, Happening::Gone);
        cx.pending.closed.push(id.link());
        // The lanes of VLANs hold the TAP open.
        vlans::end(self, cx, id);
        if let Some((interface, Payload::Ip(ip))) = self.remove(id) {
            let port = &mut cx.ports[interface.port];
            ip.link.fabric.close(&interface.name, port);
        }
    }
}

/// The error that a child's parent does not exist.
pub fn no_parent(child: &IpoibConfig) -> DaemonError {
    DaemonError::Interface {
        name: child.name.clone(),
        source: InterfaceError::NoParent(child.parent.clone().unwrap_or_default()),
    }
}
