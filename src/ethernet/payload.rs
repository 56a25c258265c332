//! The payload of a VNIC: its place on a virtual Ethernet switch and the state that the control thread
//! keeps.

use std::sync::Arc;

use control::config::VnicConfig;
use fabric::{Gid, PKey, PortAttributes, QKey, Qpn};
use proto::LogLimiter;
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::carriage::data_qkey;
use vnic::directory::{Directory, NodeAddress};
use vnic::mac_table::MacTable;
use vnic::{Lid, Mac};

use super::mtu::{carried_mtu, wanted_mtu};
use super::{Alias, RetainedCounters};
use crate::datapath::EthernetSibling;
use crate::fdstore;
use crate::interface::{
    FabricLink, GSO_MAX, GSO_MAX_WHOLE, Interface, InterfaceError, InterfaceId, Setup, TAP_MTU,
    TapSources,
};
use crate::port::PortId;

/// Minimum time between two log lines about conflicts of one kind, in milliseconds.
const LOG_APART_MS: u64 = 1000;

/// The payload of a VNIC.
pub struct Ethernet {
    /// The configuration.
    pub spec: VnicConfig,
    /// Created by a manager, not configured.
    pub made_by_manager: bool,
    /// Why the VNIC could not join the last switch set by its manager or the configuration.
    pub failed: Option<String>,
    /// The link, while the VNIC is on a switch.
    pub link: Option<FabricLink>,
    /// The settings from the manager or the configuration.
    pub info: VeswPortInfo,
    /// The manager's MAC table.
    pub table: Arc<MacTable>,
    /// The addresses of the switch's members.
    pub directory: Arc<Directory>,
    /// The largest MTU that the port and the group of the switch carry.
    pub carried_mtu: u32,
    /// Whether an interface is stacked on it that carries frames of other hosts.
    pub stacked: bool,
    /// Whether it is a port of a bond or team, which joins the groups.
    pub bonded: bool,
    /// Whether the host needs the frames of all groups (`ip link set allmulticast on`, a multicast router).
    pub allmulti: bool,
    /// The siblings, as sent to the data threads.
    pub siblings: Arc<[EthernetSibling]>,
    /// MACs behind the interface, as reported last by the data threads.
    pub guests: Vec<Mac>,
    /// The MACs of the host's groups.
    pub host_groups: Vec<Mac>,
    /// Limits log lines about LID conflicts.
    pub lid_conflicts: LogLimiter,
    /// Limits log lines about MAC conflicts.
    pub mac_conflicts: LogLimiter,
    /// The counters.
    pub counted: RetainedCounters,
    /// The key of the flow hash, the same for all its lanes.
    pub(super) hash_key: u64,
}

/// The context for the creation of a VNIC.
pub struct VnicContext<'a> {
    /// The source of the TAP.
    pub tap: TapSources<'a>,
    /// The fabric port.
    pub port: (PortId, PortAttributes),
    /// The number of the port's data threads.
    pub threads: usize,
}

impl Ethernet {
    /// Creates the TAP. The VNIC is on no switch yet.
    ///
    /// # Errors
    /// [`InterfaceError`]. Nothing stays behind.
    pub fn create(
        id: InterfaceId,
        spec: &VnicConfig,
        site: &mut VnicContext<'_>,
    ) -> Result<(Interface, Ethernet), InterfaceError> {
        let (port_id, port) = (site.port.0, &site.port.1);
        let carried_mtu = carried_mtu(port.ud_payload_max);
        let mtu = wanted_mtu(spec, carried_mtu)?;
        let queues = spec.queue_count().clamp(1, site.threads.max(1));
        let (mut interface, origin) =
            Interface::open(id, port_id, &spec.interface, queues, &mut site.tap)?;
        let ethernet = Ethernet {
            spec: spec.clone(),
            made_by_manager: false,
            failed: None,
            link: None,
            info: VeswPortInfo::default(),
            table: Arc::default(),
            directory: Arc::default(),
            carried_mtu,
            stacked: false,
            bonded: false,
            allmulti: false,
            siblings: Arc::default(),
            guests: Vec::new(),
            host_groups: Vec::new(),
            lid_conflicts: LogLimiter::new(LOG_APART_MS),
            mac_conflicts: LogLimiter::new(LOG_APART_MS),
            counted: RetainedCounters::default(),
            hash_key: fabric::random(),
        };
        // An existing TAP keeps an MTU that is not the default of a TAP.
        let is_wish = |mtu: u32| spec.mtu.is_none() && mtu != TAP_MTU;
        let setup = Setup {
            mac: None,
            mtu,
            keeps_mtu: &|link| is_wish(link.mtu) && ethernet.allowed_mtu().contains(&link.mtu),
            gso_max: ethernet.gso_max(),
            alias: ethernet.alias(&port.name),
            up: spec.up,
        };
        let netns = spec.netns.as_deref();
        if let Err(e) = interface.prepare(&origin, netns, site.tap.netlink, &setup) {
            interface.abandon(spec, &origin);
            return Err(e);
        }
        fdstore::keep(&spec.interface, &interface.tap);
        Ok((interface, ethernet))
    }

    /// The alias of the interface.
    pub fn alias(&self, port: &str) -> String {
        let alias = Alias {
            port: port.to_owned(),
            index: self.spec.index,
            switch: self.is_on_switch().then(|| (self.info.vesw_id, self.lid())),
        };
        alias.to_string()
    }

    /// The largest frame in bytes that the host sends to the interface.
    pub fn gso_max(&self) -> u32 {
        match self.stacked {
            true => GSO_MAX_WHOLE,
            false => GSO_MAX,
        }
    }
}

/// The settings of the manager or the configuration, and what follows from them.
impl Ethernet {
    /// Whether the VNIC is on a switch.
    pub fn is_on_switch(&self) -> bool {
        self.info.vesw_id != 0
    }

    /// Whether the VNIC is on the switch of `info`. Then its endpoint stays: reachable members and Q_Key
    /// are those of the switch.
    pub fn is_on_switch_of(&self, info: &VeswPortInfo) -> bool {
        let switch = |info: &VeswPortInfo| (info.vesw_id, info.fabric_id, info.pkey);
        switch(&self.info) == switch(info)
    }

    /// The LID.
    pub fn lid(&self) -> Lid {
        self.info.encap_slid
    }

    /// Whether it is configured to forward.
    pub fn is_to_forward(&self) -> bool {
        self.is_on_switch() && self.info.config_state == ConfigState::Forwarding
    }

    /// Whether it forwards.
    pub fn forwards(&self, interface: &Interface) -> bool {
        self.is_to_forward() && interface.up && interface.carrier
    }

    /// The operational state.
    pub fn oper_state(&self, interface: &Interface) -> ConfigState {
        match self.forwards(interface) {
            true => ConfigState::Forwarding,
            false => ConfigState::DropAll,
        }
    }

    /// Whether frames can be carried on the switch that a manager has set.
    pub fn is_ready(&self) -> bool {
        let has_entry = self.link.is_none() || self.entry().is_some();
        has_entry && self.missing_group().is_none()
    }

    /// The P_Key table entry in use.
    pub fn entry(&self) -> Option<PKey> {
        self.link.as_ref()?.endpoint.pkey
    }

    /// Why the group of its switch is not joined.
    pub fn missing_group(&self) -> Option<&str> {
        self.link.as_ref()?.groups.missing()
    }

    /// The Q_Key of its switch.
    pub fn qkey(&self) -> QKey {
        data_qkey(self.info.vesw_id)
    }

    /// The queue pair number; 0 without an endpoint.
    pub fn qpn(&self) -> Qpn {
        let endpoint = self.link.as_ref().map(|link| link.endpoint);
        endpoint.map_or(Qpn::new(0), |endpoint| endpoint.qpn)
    }

    /// The address on a port with this GID.
    pub fn address_at(&self, gid: Gid) -> NodeAddress {
        let qpn = self.qpn();
        NodeAddress { gid, qpn }
    }

    /// The identity from which the queue pair number is derived.
    pub fn identity(&self) -> String {
        // No interface name has a space.
        format!("vnic {}", self.spec.index)
    }
}
