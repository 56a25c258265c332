//! One VNIC: a TAP interface, its UD endpoint while it is on a switch, and what the control thread keeps
//! about it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use fabric::port::UdEndpoint;
use fabric::{EndpointId, Gid, PortAttributes, QKey, Qpn};
use netdev::netns::NamespaceId;
use netdev::tap::{Tap, TapQueue, is_gone};
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::carriage::{data_qkey, group_mgid};
use vnic::counters::Counters;
use vnic::directory::{Directory, NodeAddress};
use vnic::packet::eth_mtu;
use vnic::port::{Settings, VeswPort};
use vnic::table::MacTable;
use vnic::{Lid, Mac};

use super::{Alias, Refused};
use crate::config::VnicConfig;
use crate::config::vnic::ETH_MTU_MIN;
use crate::daemon::{Place, visit};
use crate::datapath::{
    Command, DeviceId, EthernetCommand, EthernetLane, EthernetSibling, Mailbox, TapStats,
};
use crate::device::{self, DeviceError, Opened, TapSite, TapSpec};
use crate::fdstore;
use crate::watch::Subject;

/// The MTU in bytes of a TAP that nobody has set one for (kernel drivers/net/tun.c,
/// tun_net_initialize: ETH_DATA_LEN), and of a VNIC of the kernel's.
const USUAL_MTU: u32 = 1500;

/// The largest frame that the host gives us at once, headers included: with all packets' headers it
/// stays under the 64 KiB of one send of a software fabric's underlay (see `docs/performance.md`).
const GSO_MAX: u32 = 60_000;

/// What guests may send at once: the default of the kernel, of veth and of virtio-net.
const GSO_MAX_WHOLE: u32 = 65_536;

/// Groups that one VNIC is attached to: its switch's, and those that its manager's table names.
const GROUPS_MAX: usize = 256;

/// A VNIC in service.
pub struct Vnic {
    /// Its name here.
    pub id: DeviceId,
    /// Its fabric port.
    pub at: usize,
    /// What was asked for.
    pub spec: VnicConfig,
    /// Nobody asked for it but a manager.
    pub made_by_manager: bool,
    /// Why what a manager wanted of it last could not be done.
    pub failed: Option<String>,
    /// The interface's name now.
    pub name: String,
    /// Its interface index.
    pub ifindex: u32,
    /// Where the interface is.
    pub place: Place,
    /// The same for as long as that namespace lives; `None`: the daemon's own.
    pub namespace: Option<NamespaceId>,
    /// What that is called, for those who watch; as [`crate::api::Event::netns`].
    pub netns: Option<String>,
    /// The TAP.
    pub tap: Tap,
    queues: Vec<TapQueue>,
    /// The UD endpoint, while it is on a switch.
    pub endpoint: Option<UdEndpoint>,
    /// What the manager or the configuration says.
    pub info: VeswPortInfo,
    /// The manager's MAC table.
    pub table: Arc<MacTable>,
    /// Where the members of its switch are.
    pub directory: Arc<Directory>,
    /// The TAP's MAC.
    pub mac: Mac,
    /// The TAP's MTU now.
    pub mtu: u32,
    /// The largest MTU that the port's packets have room for.
    pub carried_mtu: u32,
    /// Whether the interface is administratively up.
    pub up: bool,
    /// Carrier as last set.
    pub carrier: bool,
    /// Receive coalescing as last seen (`ethtool -K gro`).
    pub coalesce: bool,
    /// Whether something is stacked on it that has frames of others.
    pub stacked: bool,
    /// Groups attached.
    pub joined: BTreeSet<Gid>,
    /// Those that could not be attached.
    pub refused: Refused,
    /// VNICs of this daemon on the same switch, as last told.
    pub siblings: Arc<[EthernetSibling]>,
    /// MACs behind the interface, as last told by the data threads.
    pub guests: Vec<Mac>,
    /// MACs of groups that the host has joined.
    pub groups: Vec<Mac>,
    /// Counters of endpoints that it had before.
    pub retired: (Counters, TapStats),
    hash_key: u64,
}

/// Where a VNIC is made.
pub struct VnicSite<'a> {
    /// Its TAP.
    pub(crate) tap: TapSite<'a>,
    /// Its fabric port, and its place among the daemon's.
    pub port: (usize, PortAttributes),
    /// The port's data threads.
    pub threads: usize,
}

impl Vnic {
    /// Makes the TAP. It is on no switch yet.
    ///
    /// # Errors
    /// [`DeviceError`]; nothing is left behind.
    pub fn create(
        id: DeviceId,
        spec: &VnicConfig,
        site: &mut VnicSite<'_>,
    ) -> Result<Vnic, DeviceError> {
        let (at, port) = (site.port.0, &site.port.1);
        let carried_mtu = carried_mtu(port.ud_payload_max);
        let mtu = wanted_mtu(spec, carried_mtu)?;
        let queues = spec.queue_count().clamp(1, site.threads.max(1));
        let opened = Opened::find(&tap_spec(spec), queues, &mut site.tap)?;
        let mut vnic = Vnic {
            id,
            at,
            spec: spec.clone(),
            made_by_manager: false,
            failed: None,
            name: opened.name,
            ifindex: opened.tap.ifindex(),
            place: Place::HOME,
            namespace: None,
            netns: None,
            tap: opened.tap,
            queues: opened.queues,
            endpoint: None,
            info: VeswPortInfo::default(),
            table: Arc::default(),
            directory: Arc::default(),
            mac: [0; 6],
            mtu,
            carried_mtu,
            up: false,
            carrier: false,
            coalesce: true,
            stacked: false,
            joined: BTreeSet::new(),
            refused: Refused::default(),
            siblings: Arc::default(),
            guests: Vec::new(),
            groups: Vec::new(),
            retired: Default::default(),
            hash_key: drawn(),
        };
        // One that was never without a queue keeps its carrier, as an IPoIB interface does.
        if !opened.inherited {
            vnic.set_carrier(false);
        }
        let prepared = match &opened.namespace {
            None => vnic.prepare_link(site.tap.netlink, &port.name),
            Some(there) => {
                vnic.namespace = there.id().ok();
                visit(there, |netlink| vnic.prepare_link(netlink, &port.name))
                    .unwrap_or_else(|e| Err(device::closed(spec.netns.as_deref(), &e)))
            }
        };
        if let Err(e) = prepared {
            vnic.undo();
            return Err(e);
        }
        fdstore::keep(&tap_spec(spec), &vnic.tap);
        Ok(vnic)
    }

    /// Sets what `ip link` shows: MTU, alias, the largest send that fits one train.
    fn prepare_link(
        &mut self,
        netlink: &mut rtnl::Requests,
        port: &str,
    ) -> Result<(), DeviceError> {
        let name = self.name.clone();
        let step = |what: &str, done: Result<(), rtnl::Error>| {
            done.map_err(|e| DeviceError::Netlink(format!("cannot set the {what} of {name}"), e))
        };
        // Its index may be another one where it was moved to.
        let link = match self.namespace {
            None => netlink.link_by_index(self.ifindex),
            Some(_) => netlink.link_by_name(&name),
        };
        let link =
            link.map_err(|e| DeviceError::Netlink(format!("cannot read the link {name}"), e))?;
        self.ifindex = link.index;
        self.mac = link.address.unwrap_or_default();
        // One that was there has the administrator's, unless it is what a TAP begins with.
        let keeps_mtu = self.tap.existed() && self.spec.mtu.is_none() && link.mtu != USUAL_MTU;
        if keeps_mtu && self.allowed_mtu().contains(&link.mtu) {
            self.mtu = link.mtu;
        } else {
            step("MTU", netlink.set_mtu(self.ifindex, self.mtu))?;
        }
        self.set_gso_max(netlink);
        step("alias", self.set_alias(netlink, port, &link))?;
        let left_down = self.tap.existed() && link.alias.is_some_and(|alias| !alias.is_empty());
        if self.spec.up && !link.up && !left_down {
            step("state", netlink.set_up(self.ifindex))?;
        } else if self.spec.up && !link.up {
            log::info!("{name}: it was set down, and is left so");
        }
        self.up = link.up;
        Ok(())
    }

    /// Says in the alias of `link` what the interface is, unless the administrator has written
    /// something else there.
    ///
    /// # Errors
    /// What rtnetlink says.
    pub fn set_alias(
        &self,
        netlink: &mut rtnl::Requests,
        port: &str,
        link: &rtnl::Link,
    ) -> Result<(), rtnl::Error> {
        let alias = Alias {
            port: port.to_owned(),
            index: self.spec.index,
            switch: self.is_on_switch().then(|| (self.info.vesw_id, self.lid())),
        };
        let alias = alias.to_string();
        if !device::Alias::is_free(link.alias.as_deref()) || link.alias.as_ref() == Some(&alias) {
            return Ok(());
        }
        netlink.set_alias(self.ifindex, &alias)
    }

    /// What events about it are about.
    pub fn subject(&self) -> Subject<'_> {
        Subject::Interface(&self.name, self.netns.as_deref())
    }

    /// How the service manager knows its TAP.
    pub fn tap_spec(&self) -> TapSpec {
        tap_spec(&self.spec)
    }

    /// TAP queues.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Sets the largest send that the host gives to the interface at once. What guests send was cut
    /// for their own interfaces already.
    pub fn set_gso_max(&self, netlink: &mut rtnl::Requests) {
        let most = if self.stacked { GSO_MAX_WHOLE } else { GSO_MAX };
        if let Err(e) = netlink.set_gso_max(self.ifindex, most) {
            log::debug!("{}: gso_max_size stays as it is: {e}", self.name);
        }
    }

    /// Takes back what would outlive a start that fails: an interface that was not there before.
    pub fn undo(&self) {
        if self.spec.persist
            && !self.tap.existed()
            && let Err(e) = self.tap.set_persist(false)
        {
            log::warn!("{}: cannot be removed: {e}", self.name);
        }
    }

    /// Sets the carrier, which `ip link` shows as NO-CARRIER when off.
    pub fn set_carrier(&mut self, on: bool) {
        match self.tap.set_carrier(on) {
            Ok(()) => self.carrier = on,
            // It was deleted, which will be told.
            Err(e) if is_gone(&e) => log::debug!("{}: cannot set the carrier: {e}", self.name),
            Err(e) => log::warn!("{}: cannot set the carrier: {e}", self.name),
        }
    }
}

/// What the manager or the configuration says, and what follows.
impl Vnic {
    /// Whether it has been given a switch.
    pub fn is_on_switch(&self) -> bool {
        self.info.vesw_id != 0
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
    pub fn forwards(&self) -> bool {
        self.is_to_forward() && self.up && self.carrier
    }

    /// What it does.
    pub fn oper_state(&self) -> ConfigState {
        match self.forwards() {
            true => ConfigState::Forwarding,
            false => ConfigState::DropAll,
        }
    }

    /// Whether its frames can be carried on the switch that a manager has put it on.
    pub fn is_ready(&self) -> bool {
        self.endpoint.is_none_or(|e| e.pkey.is_some()) && self.misses_group().is_none()
    }

    /// Why the group of its switch could not be joined.
    pub fn misses_group(&self) -> Option<&str> {
        self.refused.why(self.group()?)
    }

    /// The Q_Key of its switch.
    pub fn qkey(&self) -> QKey {
        data_qkey(self.info.vesw_id)
    }

    /// Its queue pair; 0 while it has none.
    pub fn qpn(&self) -> Qpn {
        self.endpoint.map_or(Qpn::new(0), |endpoint| endpoint.qpn)
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

    /// The MTUs that it may have: up to what its switch and its port carry.
    pub fn allowed_mtu(&self) -> RangeInclusive<u32> {
        let of_switch = match self.is_on_switch() {
            true => u32::from(self.info.eth_mtu).max(ETH_MTU_MIN),
            false => self.carried_mtu,
        };
        let most = of_switch.min(self.carried_mtu);
        ETH_MTU_MIN.min(most)..=most
    }

    /// The group of its switch.
    pub fn group(&self) -> Option<Gid> {
        self.is_on_switch()
            .then(|| self.mgid(self.info.u_mcast_dlid))
            .filter(|_| self.info.u_mcast_dlid.is_multicast())
    }

    fn mgid(&self, lid: Lid) -> Gid {
        let info = &self.info;
        group_mgid(info.pkey, info.fabric_id, info.vesw_id, lid)
    }

    /// The groups that it should be attached to: none while it is down or does not forward.
    pub fn wanted_groups(&self) -> BTreeSet<Gid> {
        let has_pkey = self.endpoint.is_some_and(|e| e.pkey.is_some());
        if !(has_pkey && self.up && self.is_to_forward()) {
            return BTreeSet::new();
        }
        let named = self.table.destinations().filter(|lid| lid.is_multicast());
        let named: BTreeSet<Lid> = named.collect();
        let named = named.into_iter().map(|lid| self.mgid(lid));
        self.group()
            .into_iter()
            .chain(named)
            .take(GROUPS_MAX)
            .collect()
    }

    /// Hands a lane to each data thread.
    pub fn hand_out(&self, endpoint: EndpointId, port: &PortAttributes, threads: &[Mailbox]) {
        for (i, thread) in threads.iter().enumerate() {
            let Some(queue) = self.queues.get(i % self.queues.len().max(1)) else {
                return;
            };
            let mut core = VeswPort::new(Settings {
                mac: self.mac,
                local: self.address_at(port.gid),
                learning: self.spec.learning.on,
                ageing_ms: self.spec.learning.ageing_ms(),
                mac_limit: self.spec.learning.mac_limit,
                hash_key: self.hash_key,
                tells: i == 0,
            });
            core.set_mtu(mtu_of(self.mtu));
            core.configure(&self.info);
            core.set_table(self.table.clone());
            core.set_directory(&self.directory);
            core.set_siblings(self.siblings.iter().map(|sibling| sibling.lid));
            core.set_up(self.up && self.carrier);
            thread.send(Command::AddEthernet(Box::new(EthernetLane {
                id: self.id,
                endpoint,
                qkey: self.qkey(),
                tap: queue.share(),
                reads: i < self.queues.len(),
                core,
                payload_max: port.ud_payload_max as usize,
                coalesce: self.coalesce,
                uso: self.tap.offloads().uso,
                siblings: self.siblings.clone(),
                stats: TapStats::default(),
            })));
        }
    }

    /// A command to all its lanes.
    pub fn command(&self, command: EthernetCommand) -> Command {
        Command::Ethernet(self.id, command)
    }
}

/// An MTU as the data threads take it.
pub fn mtu_of(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

/// The largest MTU in bytes that UD payloads of so many bytes have room for.
pub fn carried_mtu(payload_max: u32) -> u32 {
    u32::try_from(eth_mtu(payload_max as usize)).unwrap_or(u32::MAX)
}

/// The MTU that a VNIC begins with. A manager's never grows by itself (kernel opa_vnic_netdev.c,
/// `opa_vnic_process_vema_config`).
fn wanted_mtu(spec: &VnicConfig, most: u32) -> Result<u32, DeviceError> {
    let name = &spec.name;
    if most < ETH_MTU_MIN {
        return Err(DeviceError::Mtu(format!(
            "{name} cannot be made: its port's packets leave room for an MTU of {most} bytes, and \
             Ethernet needs {ETH_MTU_MIN}; raise the MTU of the network below"
        )));
    }
    match spec.mtu {
        None if spec.switch.is_some() => Ok(most),
        None => Ok(USUAL_MTU.min(most)),
        Some(mtu) if mtu <= most => Ok(mtu),
        Some(mtu) => Err(DeviceError::Mtu(format!(
            "the MTU {mtu} asked for {name} is over the port's {most}; ask for at most {most}, or \
             raise the MTU of the network below"
        ))),
    }
}

fn tap_spec(spec: &VnicConfig) -> TapSpec {
    TapSpec {
        name: spec.name.clone(),
        netns: spec.netns.clone(),
        persist: spec.persist,
    }
}

/// A number that nobody outside can know.
pub fn drawn() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortName;
    use crate::config::vnic::SwitchConfig;

    fn spec(mtu: Option<u32>, managed: bool) -> VnicConfig {
        let mut spec = VnicConfig::new("vnic0", PortName::Underlay("eth0".into()), 0);
        spec.mtu = mtu;
        spec.switch = (!managed).then(|| SwitchConfig::new(1));
        spec
    }

    #[test]
    fn the_mtu_is_the_ports_the_configurations_or_the_usual_one() {
        assert_eq!(carried_mtu(4096), 4053);
        assert_eq!(wanted_mtu(&spec(None, false), 4053).unwrap(), 4053);
        assert_eq!(wanted_mtu(&spec(None, true), 4053).unwrap(), 1500);
        assert_eq!(wanted_mtu(&spec(None, true), 1381).unwrap(), 1381);
        assert_eq!(wanted_mtu(&spec(Some(1400), false), 4053).unwrap(), 1400);
        let refused = wanted_mtu(&spec(Some(9000), false), 4053).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the MTU 9000 asked for vnic0 is over the port's 4053; ask for at most 4053, or raise the \
             MTU of the network below"
        );
        assert!(wanted_mtu(&spec(None, false), 67).is_err());
    }
}
