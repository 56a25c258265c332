//! What only a VNIC has: its place on a virtual Ethernet switch, and what the control thread keeps about it.

use std::sync::Arc;

use control::config::VnicConfig;
use fabric::{Gid, PKey, PortAttributes, QKey, Qpn};
use proto::LogLimiter;
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::carriage::data_qkey;
use vnic::directory::{Directory, NodeAddress};
use vnic::mac_table::MacTable;
use vnic::{Lid, Mac, Time};

use super::mtu::{carried_mtu, wanted_mtu};
use super::{Alias, RetainedCounters, now};
use crate::datapath::EthernetSibling;
use crate::fdstore;
use crate::interface::InterfaceId;
use crate::interface::{
    FabricLink, GSO_MAX, GSO_MAX_WHOLE, Interface, InterfaceError, Setup, TAP_MTU, TapSources,
};
use crate::port::PortId;

/// Between two log lines about conflicts of one kind.
const LOG_APART_MS: u64 = 1000;
/// How long an interface keeps the carrier that a former daemon left it with, and waits for its Ethernet
/// Manager: the lease of one that has announced none.
const CARRIER_LEFT_MS: u64 = 15_000;

/// What an interface has that carries Ethernet over the fabric.
pub struct Ethernet {
    /// What was asked for.
    pub spec: VnicConfig,
    /// Nobody asked for it but a manager.
    pub made_by_manager: bool,
    /// Why it could not be put on the switch that its manager or the configuration wanted last.
    pub failed: Option<String>,
    /// Its link of the fabric, while it is on a switch.
    pub link: Option<FabricLink>,
    /// What the manager or the configuration says.
    pub info: VeswPortInfo,
    /// The manager's MAC table.
    pub table: Arc<MacTable>,
    /// Where the members of its switch are.
    pub directory: Arc<Directory>,
    /// The largest MTU that the port's packets have room for.
    pub carried_mtu: u32,
    /// It was not set yet, and is as a former daemon left it: until when it may stay so while no manager
    /// has configured it.
    pub carrier_left: Option<Time>,
    /// Whether something is stacked on it that has frames of others.
    pub stacked: bool,
    /// Whether it is a port of a bond or team, which joins the groups.
    pub bonded: bool,
    /// Whether somebody wants every group's frames (`ip link set allmulticast on`, a multicast router).
    pub allmulti: bool,
    /// VNICs of this daemon on the same switch, as the data threads have them.
    pub siblings: Arc<[EthernetSibling]>,
    /// MACs behind the interface, as the data threads have reported them last.
    pub guests: Vec<Mac>,
    /// MACs of groups that the host has joined.
    pub host_groups: Vec<Mac>,
    /// Conflicts of LIDs in the log.
    pub lid_conflicts: LogLimiter,
    /// Conflicts of MACs in the log.
    pub mac_conflicts: LogLimiter,
    /// What has been counted of it.
    pub counted: RetainedCounters,
    /// The key of its flow hash, of all lanes that it ever has.
    pub(super) hash_key: u64,
}

/// Where a VNIC is made.
pub struct VnicContext<'a> {
    /// Its TAP.
    pub tap: TapSources<'a>,
    /// Its fabric port.
    pub port: (PortId, PortAttributes),
    /// The port's data threads.
    pub threads: usize,
}

impl Ethernet {
    /// Makes the TAP. It is on no switch yet.
    ///
    /// # Errors
    /// [`InterfaceError`]; nothing is left behind.
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
            carrier_left: origin.inherited.then(|| now().after(CARRIER_LEFT_MS)),
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
        // One that was there has the administrator's, unless it is what a TAP begins with.
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
            interface.undo(spec.persist);
            return Err(e);
        }
        fdstore::keep(&spec.interface, &interface.tap);
        Ok((interface, ethernet))
    }

    /// What the alias says that the interface is, on this port.
    pub fn alias(&self, port: &str) -> String {
        let alias = Alias {
            port: port.to_owned(),
            index: self.spec.index,
            switch: self.is_on_switch().then(|| (self.info.vesw_id, self.lid())),
        };
        alias.to_string()
    }

    /// The largest send that the host gives to the interface at once.
    pub fn gso_max(&self) -> u32 {
        match self.stacked {
            true => GSO_MAX_WHOLE,
            false => GSO_MAX,
        }
    }
}

/// What the manager or the configuration says, and what follows.
impl Ethernet {
    /// Whether it has been given a switch.
    pub fn is_on_switch(&self) -> bool {
        self.info.vesw_id != 0
    }

    /// Whether it is on the switch that this is about: what its frames can reach, and its queue pair, whose
    /// Q_Key is the switch's, stay.
    pub fn is_on_switch_of(&self, info: &VeswPortInfo) -> bool {
        let switch = |info: &VeswPortInfo| (info.vesw_id, info.fabric_id, info.pkey);
        switch(&self.info) == switch(info)
    }

    /// The LID of its packets.
    pub fn lid(&self) -> Lid {
        self.info.encap_slid
    }

    /// Whether it is to forward.
    pub fn is_to_forward(&self) -> bool {
        self.is_on_switch() && self.info.config_state == ConfigState::Forwarding
    }

    /// Whether it forwards.
    pub fn forwards(&self, interface: &Interface) -> bool {
        self.is_to_forward() && interface.up && interface.carrier
    }

    /// What it does.
    pub fn oper_state(&self, interface: &Interface) -> ConfigState {
        match self.forwards(interface) {
            true => ConfigState::Forwarding,
            false => ConfigState::DropAll,
        }
    }

    /// Whether its frames can be carried on the switch that a manager has put it on.
    pub fn is_ready(&self) -> bool {
        let has_entry = self.link.is_none() || self.entry().is_some();
        has_entry && self.misses_group().is_none()
    }

    /// The entry of the P_Key table that it uses.
    pub fn entry(&self) -> Option<PKey> {
        self.link.as_ref()?.endpoint.pkey
    }

    /// Why it could not join the group of its switch.
    pub fn misses_group(&self) -> Option<&str> {
        self.link.as_ref()?.groups.misses()
    }

    /// The Q_Key of its switch.
    pub fn qkey(&self) -> QKey {
        data_qkey(self.info.vesw_id)
    }

    /// Its queue pair; 0 while it has none.
    pub fn qpn(&self) -> Qpn {
        let endpoint = self.link.as_ref().map(|link| link.endpoint);
        endpoint.map_or(Qpn::new(0), |endpoint| endpoint.qpn)
    }

    /// Where it is on a port with this GID.
    pub fn address_at(&self, gid: Gid) -> NodeAddress {
        let qpn = self.qpn();
        NodeAddress { gid, qpn }
    }

    /// The name of its queue pair, which its number is made from.
    pub fn identity(&self) -> String {
        // No interface's name has a space.
        format!("vnic {}", self.spec.index)
    }
}
