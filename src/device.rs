//! One device: a TAP interface, its UD endpoint, and what the control thread keeps about it.

mod alias;
mod mtu;
mod opened;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use control::config::{IpoibConfig, QpnChoice, SCOPE};
use fabric::port::UdEndpoint;
use fabric::{FabricError, Gid, PKey, Port, Qpn, Services, UdInit};
use ipoib::{HardwareAddress, Mode};
use netdev::netns::{Namespace, NamespaceId};
use netdev::tap::{Tap, TapError, TapQueue, is_gone};

use crate::behind::Behind;
use crate::daemon::{Place, visit};
use crate::datapath::{Command, DeviceId, IpLane, LaneBase, LaneInit, Mailbox, Sibling, now};
use crate::fdstore;
use crate::watch::Subject;
pub use alias::Alias;
pub use mtu::{CONNECTED_MTU, MtuLimits};
pub(crate) use opened::{Opened, TapSite, closed};

/// The encapsulation header of RFC 4391, section 6, in bytes.
pub const ENCAPSULATION: u32 = 4;

/// The smallest MTU that the kernel's IPoIB accepts (`ipoib_change_mtu`).
pub const MTU_MIN: u32 = 68 + ENCAPSULATION;

/// Why a device could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The fabric refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The TAP could not be made.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// rtnetlink refused.
    #[error("{0}: {1}")]
    Netlink(String, rtnl::Error),
    /// The MTU does not fit; the text is a whole sentence.
    #[error("{0}")]
    Mtu(String),
    /// It is to be a child of a device that is not there; with the configured name of that.
    #[error("there is no interface {0} on its port to be a child of")]
    NoParent(String),
    /// The port's P_Key table could not take its partition in; the text is a whole sentence.
    #[error("{0}")]
    Pkeys(String),
    /// The interface that was to be taken over is gone, or another one now.
    #[error("the interface {0} is gone")]
    Vanished(String),
    /// The port does not serve the mode; the text is a whole sentence.
    #[error("{0}")]
    Mode(String),
    /// The network namespace is not there or cannot be entered; the text is a whole sentence.
    #[error("{0}")]
    Netns(String),
}

/// A device in service.
pub struct Device {
    /// Its name here.
    pub id: DeviceId,
    /// What it is a child of.
    pub parent: Option<DeviceId>,
    /// The name of that now.
    pub parent_name: Option<String>,
    /// Where the interface is.
    pub place: Place,
    /// The same for as long as that namespace lives; `None`: the daemon's own.
    pub namespace: Option<NamespaceId>,
    /// What that is called, for those who watch; as [`control::api::Event::netns`].
    pub netns: Option<String>,
    /// What was asked for.
    pub spec: IpoibConfig,
    /// The interface's name now.
    pub name: String,
    /// Its interface index.
    pub ifindex: u32,
    /// The TAP; queues are with the data threads.
    pub tap: Tap,
    /// Queues made.
    pub queues: usize,
    /// The UD endpoint.
    pub endpoint: UdEndpoint,
    /// How unicast IP packets travel now.
    pub mode: Mode,
    /// How many connections it may have; 0 where the port makes none.
    pub connections: usize,
    /// Which services requests for connections may name on its port.
    pub services: Services,
    /// Peers may ask for some: its address says so in connected mode.
    pub offers: bool,
    /// Groups that its port may be attached to, for all its devices.
    pub groups_max: usize,
    /// The 20-byte address.
    pub address: HardwareAddress,
    /// The TAP's MAC.
    pub mac: [u8; 6],
    /// The TAP's MTU now.
    pub mtu: u32,
    /// What bounds its MTU.
    pub limits: MtuLimits,
    /// The bridge that the interface is a port of.
    pub bridge: Option<u32>,
    /// Whether the interface is administratively up. While it is not, it holds no groups.
    pub up: bool,
    /// Devices of this daemon that it reaches without the wire, as last told.
    pub siblings: Arc<[Sibling]>,
    /// What `umcast` was set to. Without effect: a program of the user's that joins groups itself is
    /// attached to them beside us.
    pub umcast: bool,
    /// Carrier as last set.
    pub carrier: bool,
    /// Receive coalescing as last seen (`ethtool -K gro`).
    pub coalesce: bool,
    /// Groups attached, the broadcast group included.
    pub joined: BTreeSet<Gid>,
    /// Groups that could not be attached, so that each is logged once.
    pub refused: BTreeSet<Gid>,
    /// It was told that hosts behind it have joined more groups than there is room for.
    pub told_groups_full: bool,
    /// The groups that the host itself has joined, as last read.
    pub host_groups: BTreeSet<IpAddr>,
    /// What is behind it besides the host.
    pub behind: Behind,
    /// Addresses that two hosts were seen to claim, so that each is logged once.
    pub conflicts: BTreeSet<IpAddr>,
    /// That signed neighbour discovery passes has been logged.
    pub told_signed: bool,
    /// When it was made.
    pub created: ipoib::Time,
    /// Addresses of the host, to be announced when the link's address changes.
    pub addresses: BTreeSet<IpAddr>,
}

/// An interface that nobody serves and that a device takes over.
pub struct Stray<'a> {
    /// What it is like.
    pub link: &'a rtnl::Link,
    /// The network namespace that it is in, if it is another one than the daemon's.
    pub namespace: Option<Namespace>,
}

/// Where a device is made.
pub struct Site<'a> {
    /// What it becomes a child of, and the name of that.
    pub parent: Option<(DeviceId, String)>,
    /// Its TAP.
    pub(crate) tap: TapSite<'a>,
    /// Its fabric port.
    pub port: &'a mut dyn Port,
    /// Peers may be the kernel's IPoIB.
    pub kernel_peers: bool,
    /// The port's data threads.
    pub threads: &'a [Mailbox],
}

impl Site<'_> {
    /// Whether all peers' requests for connections arrive. The kernel's IPoIB, whose do not over
    /// rdma_cm's services, would ask for ever whoever offers some, and send nothing meanwhile.
    fn takes_requests(&self, services: Services) -> bool {
        match services {
            Services::Any => true,
            Services::RdmaCm => !self.kernel_peers,
        }
    }
}

impl Device {
    /// Makes endpoint and TAP and hands a lane to each data thread.
    ///
    /// # Errors
    /// [`DeviceError`]; nothing is left behind.
    pub fn create(
        id: DeviceId,
        spec: &IpoibConfig,
        site: &mut Site<'_>,
    ) -> Result<Device, DeviceError> {
        let limits = MtuLimits::of(site.port);
        let mtu = limits.wanted(spec, spec.mode.into())?;
        let endpoint = create_endpoint(spec, site.port)?;
        let made = Self::with_endpoint(id, spec, site, endpoint, mtu, limits);
        if made.is_err() {
            // The error that is reported is the one that came first.
            let _ = site.port.destroy_ud(endpoint.id);
        }
        made
    }

    fn with_endpoint(
        id: DeviceId,
        spec: &IpoibConfig,
        site: &mut Site<'_>,
        endpoint: UdEndpoint,
        mtu: u32,
        limits: MtuLimits,
    ) -> Result<Device, DeviceError> {
        let attributes = site.port.attributes();
        let queues = spec.queue_count().clamp(1, site.threads.len().max(1));
        let opened = Opened::find(&spec.interface, queues, &mut site.tap)?;
        let (tap, lanes) = (opened.tap, opened.queues);
        let connections = match limits.has_connections() {
            true => spec.connections,
            false => 0,
        };
        let capabilities = site.port.capabilities();
        let offers = connections != 0 && site.takes_requests(capabilities.services);
        let address = hardware_address(spec.mode.into(), offers, endpoint.qpn, attributes.gid);
        let mac = ipoib::local_mac(attributes.gid, spec.pkey, &spec.identity());
        let mut device = Device {
            id,
            parent: site.parent.as_ref().map(|(id, _)| *id),
            parent_name: site.parent.as_ref().map(|(_, name)| name.clone()),
            place: Place::HOME,
            namespace: None,
            netns: None,
            spec: spec.clone(),
            name: opened.name,
            ifindex: tap.ifindex(),
            queues: lanes.len(),
            tap,
            endpoint,
            mode: spec.mode.into(),
            connections,
            services: capabilities.services,
            offers,
            groups_max: capabilities.groups_max,
            address,
            mac,
            mtu,
            limits,
            bridge: None,
            up: false,
            siblings: Arc::default(),
            umcast: false,
            carrier: false,
            coalesce: true,
            joined: BTreeSet::new(),
            refused: BTreeSet::new(),
            told_groups_full: false,
            host_groups: BTreeSet::new(),
            // Nobody has the address that peers see us under.
            behind: Behind::new(ipoib::peer_mac(&address)),
            conflicts: BTreeSet::new(),
            told_signed: false,
            created: now(),
            addresses: BTreeSet::new(),
        };
        // An interface that was never without a queue keeps its carrier: to lose it would flush what
        // bridges have learned and, with some network managers, the addresses.
        if !opened.inherited {
            device.set_carrier(false);
        }
        let prepared = match &opened.namespace {
            None => device.prepare_link(site.tap.netlink, &attributes.name),
            Some(there) => {
                device.namespace = there.id().ok();
                visit(there, |netlink| {
                    device.prepare_link(netlink, &attributes.name)
                })
                .unwrap_or_else(|e| Err(closed(spec.netns.as_deref(), &e)))
            }
        };
        let prepared = prepared.and_then(|up| Ok(device.join_broadcast(site.port, up)?));
        if let Err(e) = prepared {
            device.undo();
            return Err(e);
        }
        device.hand_out(&lanes, site.threads);
        fdstore::keep(&spec.interface, &device.tap);
        Ok(device)
    }

    /// Attaches to the broadcast group, without which there is no link, unless it stays down.
    fn join_broadcast(&mut self, port: &mut dyn Port, up: bool) -> Result<(), FabricError> {
        if self.endpoint.pkey.is_some() && up {
            let broadcast = ipoib::broadcast_mgid(self.spec.pkey, SCOPE);
            port.attach(self.endpoint.id, broadcast)?;
            self.joined.insert(broadcast);
        }
        Ok(())
    }

    /// Sets what `ip link` shows: MAC, MTU, alias, the largest send that fits one train. True if it is
    /// up, or is going to be.
    fn prepare_link(
        &mut self,
        netlink: &mut rtnl::Requests,
        port: &str,
    ) -> Result<bool, DeviceError> {
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
        if link.address != Some(self.mac) && !self.tap.existed() {
            step("MAC address", netlink.set_mac(self.ifindex, self.mac))?;
        } else if let Some(mac) = link.address {
            self.mac = mac;
        }
        let keeps_mtu = self.spec.mtu.is_none() && self.has_wished_mtu(&link);
        if keeps_mtu && self.limits.allowed(self.mode).contains(&link.mtu) {
            self.mtu = link.mtu;
        } else {
            step("MTU", netlink.set_mtu(self.ifindex, self.mtu))?;
        }
        self.set_gso_max(netlink, false);
        step("alias", self.set_alias(netlink, port, &link))?;
        // One that has an alias was in use, and somebody has set it down.
        let left_down = self.tap.existed() && link.alias.is_some_and(|alias| !alias.is_empty());
        let comes_up = self.spec.up && !link.up && !left_down;
        if comes_up {
            step("state", netlink.set_up(self.ifindex))?;
        } else if self.spec.up && !link.up {
            log::info!("{name}: it was set down, and is left so");
        }
        self.up = link.up;
        Ok(link.up || comes_up)
    }

    /// Whether the MTU of an interface that was there is the administrator's wish: a daemon left it
    /// behind in this mode, or it is another one than a TAP begins with.
    fn has_wished_mtu(&self, link: &rtnl::Link) -> bool {
        let served = link.alias.as_deref().and_then(Alias::parse);
        self.tap.existed()
            && match served {
                Some(served) => ipoib::Mode::from(served.mode) == self.mode,
                // The administrator's own alias does not tell the mode: what is usual in either is
                // nobody's wish.
                None if !Alias::is_free(link.alias.as_deref()) => {
                    let modes = [ipoib::Mode::Datagram, ipoib::Mode::Connected];
                    let usual = modes.map(|mode| *self.limits.allowed(mode).end());
                    link.mtu != TAP_MTU && !usual.contains(&link.mtu)
                }
                None => self.parent.is_some() && link.mtu != TAP_MTU,
            }
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
            gid: self.namespace.map(|_| self.address.gid()),
            parent: self.parent_name.clone(),
            pkey: self.spec.pkey,
            mode: self.mode.into(),
        };
        let alias = alias.to_string();
        if !Alias::is_free(link.alias.as_deref()) || link.alias.as_ref() == Some(&alias) {
            return Ok(());
        }
        netlink.set_alias(self.ifindex, &alias)
    }

    /// What events about it are about.
    pub fn subject(&self) -> Subject<'_> {
        Subject::Interface(&self.name, self.netns.as_deref())
    }

    /// The mode as the administrator knows it, the last word of the alias.
    pub fn mode_word(&self) -> String {
        control::api::Mode::from(self.mode).to_string()
    }

    /// Its address on a port with this GID, in the mode that it has now.
    pub fn address_at(&self, gid: Gid) -> HardwareAddress {
        hardware_address(self.mode, self.offers, self.endpoint.qpn, gid)
    }

    /// Sets the largest send that the host gives to the interface at once. What guests send was cut
    /// for their own interfaces already: with less than they may send, the kernel would cut it into
    /// single packets. In connected mode a send has to hold a packet of the largest MTU.
    pub fn set_gso_max(&self, netlink: &mut rtnl::Requests, stacked: bool) {
        let most = match self.mode {
            Mode::Datagram if !stacked => GSO_MAX,
            _ => GSO_MAX_WHOLE,
        };
        // Older kernels refuse; sends are then up to 64 KiB and leave in two trains.
        if let Err(e) = netlink.set_gso_max(self.ifindex, most) {
            log::debug!("{}: gso_max_size stays as it is: {e}", self.name);
        }
    }

    fn hand_out(&self, queues: &[TapQueue], threads: &[Mailbox]) {
        for (i, thread) in threads.iter().enumerate() {
            let Some(queue) = queues.get(i % queues.len().max(1)) else {
                return;
            };
            let core = ipoib::Ipoib::new(ipoib::Config {
                local: self.address,
                mac: self.mac,
                pkey: self.spec.pkey,
                scope: SCOPE,
                link_mtu: self.limits.datagram as usize,
                mode: self.mode,
                services: self.services,
                dhcp: self.spec.dhcp.into(),
                limits: ipoib::Limits {
                    connections: share(self.connections, threads.len()),
                    ..ipoib::Limits::default()
                },
            });
            let init = LaneInit {
                id: self.id,
                endpoint: self.endpoint.id,
                qkey: self.spec.qkey,
                uso: self.tap.offloads().uso,
            };
            let mut base = LaneBase::new(&init, queue.share(), i < queues.len());
            base.set_coalesce(self.coalesce);
            thread.send(Command::AddLane(Box::new(IpLane {
                base,
                core,
                link_mtu: self.limits.datagram as usize,
                reflect: self.spec.reflect,
                vlan: None,
                stats: Default::default(),
            })));
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

    /// Whether it may be attached to groups: it is up, and its partition is there (kernel
    /// ipoib_multicast.c, `ipoib_mcast_attach`: ENXIO).
    pub fn holds_groups(&self) -> bool {
        self.up && self.endpoint.pkey.is_some()
    }

    /// The groups that the device should be attached to: the broadcast group, the all-hosts groups
    /// that nobody reports (RFC 1112, RFC 4861), what the host has joined, and what hosts behind the
    /// interface have.
    /// True if there are more than it may have.
    pub fn wanted_groups(&self, host: &BTreeSet<IpAddr>) -> (BTreeSet<Gid>, bool) {
        let most = groups_with_behind_max(self.groups_max);
        groups_of(self.spec.pkey, SCOPE, host, &self.behind, most)
    }
}

/// As [`Device::wanted_groups`], for a link of this partition and scope, where those of hosts behind it
/// end at `most`.
pub fn groups_of(
    pkey: PKey,
    scope: u8,
    host: &BTreeSet<IpAddr>,
    behind: &Behind,
    most: usize,
) -> (BTreeSet<Gid>, bool) {
    let mgid = |ip| ipoib::mgid(ip, pkey, scope);
    let own = host.iter().chain(&ALL_HOSTS).copied();
    let mut wanted: BTreeSet<Gid> = own.filter_map(mgid).collect();
    wanted.insert(ipoib::broadcast_mgid(pkey, scope));
    for group in behind.groups().filter_map(mgid) {
        if wanted.len() >= most && !wanted.contains(&group) {
            return (wanted, true);
        }
        wanted.insert(group);
    }
    (wanted, behind.turned_away() != 0)
}

/// Hosts behind an interface may ask for any number of groups; of those that a port may be attached to
/// they get no more than this together with its own host, whose groups come first, so that those
/// always find room.
pub fn groups_with_behind_max(of_port: usize) -> usize {
    of_port / 4 * 3
}

/// 224.0.0.1 and ff02::1.
const ALL_HOSTS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(224, 0, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)),
];

/// The largest frame that the host gives us at once: with all packet headers it stays under the
/// limit of 64 KiB for one send of a software fabric's underlay (see `docs/performance.md`).
const GSO_MAX: u32 = 60_000;

/// The largest frame that guests may send, and the largest packet of connected mode with its
/// headers: the default of the kernel, of veth and of virtio-net. As datagrams it leaves in two
/// trains.
const GSO_MAX_WHOLE: u32 = 65_536;

/// The flag of an address that says that its owner accepts reliable connections (RFC 4755, section
/// 3.1).
const FLAG_RC: u8 = 0x80;

/// The 20-byte address of an interface, which says that it accepts connections only while it is in
/// connected mode and peers may ask for some.
pub fn hardware_address(mode: Mode, offers: bool, qpn: Qpn, gid: Gid) -> HardwareAddress {
    let flags = match mode {
        Mode::Connected if offers => FLAG_RC,
        _ => 0,
    };
    HardwareAddress::new(flags, qpn, gid)
}

/// How many of an interface's connections each of its port's data threads may have. Each makes
/// connections of its own, so each may have one at least.
pub fn share(connections: usize, threads: usize) -> usize {
    connections.div_ceil(threads.max(1))
}

/// The MTU in bytes of a TAP that nobody has set one for (kernel drivers/net/tun.c,
/// tun_net_initialize: ETH_DATA_LEN).
const TAP_MTU: u32 = 1500;

fn create_endpoint(spec: &IpoibConfig, port: &mut dyn Port) -> Result<UdEndpoint, FabricError> {
    let wish = match spec.qpn {
        QpnChoice::Stable => Some(ipoib::local_qpn(
            port.attributes().gid,
            spec.pkey,
            &spec.identity(),
        )),
        QpnChoice::Random => None,
        QpnChoice::Number(qpn) => Some(qpn),
    };
    let endpoint = port.create_ud(UdInit {
        pkey: spec.pkey,
        qkey: spec.qkey,
        qpn: wish,
    })?;
    if let QpnChoice::Number(asked) = spec.qpn
        && asked != endpoint.qpn
    {
        log::warn!(
            "{}: the queue pair number {asked} is in use; it has {} instead",
            spec.name,
            endpoint.qpn
        );
    }
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c106_the_address_offers_connections_only_where_there_are_some() {
        let gid: Gid = "fe80::1".parse().unwrap();
        let first = |mode, offers| {
            let address = hardware_address(mode, offers, Qpn::new(0x4a), gid);
            assert_eq!((address.qpn(), address.gid()), (Qpn::new(0x4a), gid));
            address.0[0]
        };
        assert_eq!(first(Mode::Connected, true), 0x80);
        assert_eq!(first(Mode::Connected, false), 0);
        assert_eq!(first(Mode::Datagram, true), 0);
    }

    #[test]
    fn threads_share_the_connections() {
        assert_eq!(share(4096, 4), 1024);
        assert_eq!(share(4096, 3), 1366);
        assert_eq!(share(1, 4), 1);
        assert_eq!(share(0, 4), 0);
        assert_eq!(share(7, 0), 7);
    }

    #[test]
    fn equal_names_in_other_namespaces_are_other_interfaces() {
        let configured = |netns: &str| {
            let text = format!("[[device]]\nname = \"ib0\"\nunderlay = \"eth0\"\n{netns}");
            let config = control::config::Config::parse(&text, "t.toml").unwrap();
            config.ipoib[0].identity()
        };
        let (at_home, in_blue) = (configured(""), configured("netns = \"blue\""));
        assert_eq!((&*at_home, &*in_blue), ("ib0", "blue/ib0"));
        let gid: Gid = "fe80::1".parse().unwrap();
        let mac = |identity: &str| ipoib::local_mac(gid, PKey::DEFAULT, identity);
        assert_ne!(mac(&at_home), mac(&in_blue));
    }
}
