//! One VNIC: a TAP interface, its UD endpoint while it is on a switch, and what the control thread keeps
//! about it.

use std::collections::BTreeSet;
use std::sync::Arc;

use control::config::VnicConfig;
use fabric::port::UdEndpoint;
use fabric::{Gid, PortAttributes, QKey, Qpn};
use netdev::netns::NamespaceId;
use netdev::tap::{Tap, TapQueue, is_gone};
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::carriage::data_qkey;
use vnic::directory::{Directory, NodeAddress};
use vnic::table::MacTable;
use vnic::{Lid, Mac, Time};

use super::mtu::{USUAL_MTU, carried_mtu, wanted_mtu};
use super::{Alias, Ration, Refused, Tally, now};
use crate::daemon::{Place, visit};
use crate::datapath::{DeviceId, EthernetSibling};
use crate::device::{self, DeviceError, Opened, TapSite};
use crate::fdstore;
use crate::port::PortId;
use crate::watch::Subject;

/// The largest frame that the host gives us at once, headers included: with all packets' headers it
/// stays under the 64 KiB of one send of a software fabric's underlay (see `docs/performance.md`).
const GSO_MAX: u32 = 60_000;

/// What guests may send at once: the default of the kernel, of veth and of virtio-net.
const GSO_MAX_WHOLE: u32 = 65_536;

/// How long an interface keeps the carrier that a former daemon left it with, and waits for its Ethernet
/// Manager: the lease of one that has announced none.
const CARRIER_LEFT_MS: u64 = 15_000;

/// A VNIC in service.
pub struct Vnic {
    /// Its name here.
    pub id: DeviceId,
    /// Its fabric port.
    pub at: PortId,
    /// What was asked for.
    pub spec: VnicConfig,
    /// Nobody asked for it but a manager.
    pub made_by_manager: bool,
    /// Why it could not be put on the switch that its manager or the configuration wanted last.
    pub failed: Option<String>,
    /// The interface's name now.
    pub name: String,
    /// Its interface index.
    pub ifindex: u32,
    /// Where the interface is.
    pub place: Place,
    /// The same for as long as that namespace lives; `None`: the daemon's own.
    pub namespace: Option<NamespaceId>,
    /// What that is called, for those who watch; as [`control::api::Event::netns`].
    pub netns: Option<String>,
    /// The TAP.
    pub tap: Tap,
    pub(super) queues: Vec<TapQueue>,
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
    /// It was not set yet, and is as a former daemon left it: until when it may stay so while no manager
    /// has configured it.
    pub carrier_left: Option<Time>,
    /// Receive coalescing as last seen (`ethtool -K gro`).
    pub coalesce: bool,
    /// Whether something is stacked on it that has frames of others.
    pub stacked: bool,
    /// Whether it is a port of a bond or team, which joins the groups.
    pub bonded: bool,
    /// Whether somebody wants every group's frames (`ip link set allmulticast on`, a multicast router).
    pub allmulti: bool,
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
    /// Conflicts of LIDs in the log.
    pub lid_conflicts: Ration,
    /// Conflicts of MACs in the log.
    pub mac_conflicts: Ration,
    /// What has been counted of it.
    pub tally: Tally,
    /// The key of its flow hash, of all lanes that it ever has.
    pub(super) hash_key: u64,
}

/// Where a VNIC is made.
pub struct VnicSite<'a> {
    /// Its TAP.
    pub(crate) tap: TapSite<'a>,
    /// Its fabric port, and its place among the daemon's.
    pub port: (PortId, PortAttributes),
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
        let opened = Opened::find(&spec.interface, queues, &mut site.tap)?;
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
            carrier_left: None,
            coalesce: true,
            stacked: false,
            bonded: false,
            allmulti: false,
            joined: BTreeSet::new(),
            refused: Refused::default(),
            siblings: Arc::default(),
            guests: Vec::new(),
            groups: Vec::new(),
            lid_conflicts: Ration::default(),
            mac_conflicts: Ration::default(),
            tally: Tally::default(),
            hash_key: drawn(),
        };
        // One that was never without a queue keeps its carrier, as an IPoIB interface does.
        if opened.inherited {
            vnic.carrier_left = Some(now().after(CARRIER_LEFT_MS));
        } else {
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
        fdstore::keep(&spec.interface, &vnic.tap);
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
}

/// A number that nobody outside can know.
pub fn drawn() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
