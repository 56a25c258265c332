//! Ports and devices come into service, and go out of it.

use control::api::Happening;
use control::config::IpoibConfig;

use super::{Daemon, DaemonError, Names, PortSpec};
use crate::datapath::{Command, DeviceId};
use crate::device::{Device, DeviceError, Site, Stray, TapSite};
use crate::fdstore;
use crate::port::{PortId, PortRuntime};

impl Daemon {
    /// Opens a port and makes its devices.
    pub(crate) fn add_port(&mut self, spec: PortSpec) -> Result<PortId, DaemonError> {
        let port = fabric::open(spec.fabric)?;
        let mut runtime = PortRuntime::start(
            spec.name,
            port,
            spec.settings,
            &self.reports_sender,
            &self.reports_wake,
        )
        .map_err(|e| DaemonError::Os("cannot start a data thread", e))?;
        runtime.management_settings = spec.management;
        if !self.watchers.is_empty() {
            runtime.tell(|| Command::Watch(true));
        }
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
    ) -> Result<DeviceId, DaemonError> {
        let is_parent = |port: PortId, device: &Device| {
            port == at && device.parent.is_none() && device.spec.name == name
        };
        let mut all = self.devices.iter();
        all.find(|(_, (port, device))| is_parent(*port, device))
            .map(|(id, _)| *id)
            .ok_or_else(|| DaemonError::Device {
                name: child.name.clone(),
                source: DeviceError::NoParent(name.to_owned()),
            })
    }

    /// Puts a device into service on a port: a child of `parent`, with the interface `found`, if
    /// these are given.
    pub(super) fn bring_in(
        &mut self,
        at: PortId,
        spec: &IpoibConfig,
        parent: Option<DeviceId>,
        found: Option<Stray<'_>>,
    ) -> Result<DeviceId, DaemonError> {
        let id = DeviceId(self.next_id);
        self.next_id += 1;
        let failed = |source| DaemonError::Device {
            name: spec.name.clone(),
            source,
        };
        self.follow_pkeys(at, Some(spec.pkey))
            .map_err(|why| failed(DeviceError::Pkeys(why)))?;
        let made = self.make_device_at(id, at, spec, parent, found);
        let mut device = match made {
            Ok(device) => device,
            Err(e) => {
                self.unfollow_pkeys(at);
                return Err(failed(e));
            }
        };
        let missing = self.no_carrier(at, &device);
        device.set_carrier(missing.is_none());
        log::info!(
            "{}: serving on {} mode={} qpn={} pkey={} gid={} mtu={} queues={}",
            device.name,
            self.ports[at].port.attributes().name,
            device.mode_word(),
            device.endpoint.qpn,
            device.spec.pkey,
            device.address.gid(),
            device.mtu,
            device.queues
        );
        if let Some(why) = missing {
            log::info!("{}: no carrier: {why}", device.name);
        }
        // What was announced while the device was made is older than what is read now, and would
        // show states that have passed: the first MAC, the first MTU, down before up.
        for notice in self.monitor.notices() {
            self.netlink_event(notice);
        }
        // What is drained here wakes the control loop no more.
        self.tick();
        self.sync_changed_groups();
        device.netns = device.namespace.map(|there| Names::read().of(&there));
        let created = Happening::Created {
            qpn: device.endpoint.qpn,
            gid: device.address.gid(),
        };
        let waits = device.endpoint.pkey.is_none();
        let pkey = device.spec.pkey;
        self.devices.insert(id, (at, device));
        // One that went meanwhile has had its P_Key taken from the table, and that of this one, which
        // nobody in service asked for yet.
        self.unfollow_pkeys(at);
        self.tell_device(id, created);
        if waits {
            self.tell_device(id, Happening::PkeyMissing { pkey });
        }
        self.tell_child_added(id);
        self.reread(id);
        self.read_coalesce(id);
        // Among what was announced meanwhile may have been the end of its parent, which did not take
        // it along: it was no child yet.
        if parent.is_some_and(|parent| !self.devices.contains_key(&parent)) {
            self.remove_child(id);
            let name = spec.parent.clone().unwrap_or_default();
            return Err(failed(DeviceError::NoParent(name)));
        }
        self.sync_siblings();
        Ok(id)
    }

    fn make_device_at(
        &mut self,
        id: DeviceId,
        at: PortId,
        spec: &IpoibConfig,
        parent: Option<DeviceId>,
        found: Option<Stray<'_>>,
    ) -> Result<Device, DeviceError> {
        let namespace = self.namespace_for(spec, parent)?;
        let left = match found {
            Some(_) => None,
            None => self.take_left(at, spec, parent, namespace.as_ref()),
        };
        let name_of = |id| self.devices.get(&id).map(|(_, d)| (id, d.name.clone()));
        let port = &mut self.ports[at];
        let mut site = Site {
            parent: parent.and_then(name_of),
            tap: TapSite {
                found,
                netlink: &mut self.netlink,
                inherited: &mut self.inherited,
                namespace,
                left,
            },
            kernel_peers: port.kernel_peers,
            threads: &port.mailboxes(),
            port: &mut *port.port,
        };
        Device::create(id, spec, &mut site)
    }

    /// Closes a device whose TAP is gone, or is to go, and its children with their interfaces.
    pub(crate) fn forget(&mut self, id: DeviceId) {
        self.remove_children(id);
        let Some((at, device)) = self.devices.get(&id) else {
            return;
        };
        let at = *at;
        log::info!("{}: out of service, its endpoint is closed", device.name);
        fdstore::forget(&device.spec.interface);
        self.tell_child_removed(id);
        self.close(id);
        self.unfollow_pkeys(at);
    }

    /// Closes a device. Its TAP stays if it is persistent or a service manager keeps its queues.
    pub(super) fn close(&mut self, id: DeviceId) {
        self.tell_device(id, Happening::Gone);
        self.pingers.device_gone(id);
        // Their lanes hold the TAP open.
        self.end_vlans(id);
        if let Some((at, device)) = self.devices.remove(&id) {
            self.ports[at].remove_lanes(id);
            if let Err(e) = self.ports[at].port.destroy_ud(device.endpoint.id) {
                log::warn!("{}: cannot close its endpoint: {e}", device.name);
            }
        }
    }
}
