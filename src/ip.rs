//! What only interfaces have that carry IP over InfiniBand: an IP link of the fabric, and what the control
//! thread keeps about it.

mod guests;
mod lanes;
mod mtu;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use control::config::{IpoibConfig, QpnChoice, SCOPE};
use fabric::port::UdEndpoint;
use fabric::{FabricError, Gid, PKey, Port, Qpn, Services, UdInit};
use ipoib::{HardwareAddress, Mode};

use crate::datapath::{DeviceId, Mailbox, Sibling, now};
use crate::fdstore;
use crate::interface::groups::{self, Bounds, GroupSet};
use crate::interface::{
    Alias, DeviceError, GSO_MAX, GSO_MAX_WHOLE, Interface, Setup, TAP_MTU, TapSite, drawn,
};
use crate::port::PortId;

pub use guests::Guests;
pub use lanes::share;
pub use mtu::{CONNECTED_MTU, MtuLimits};

/// The encapsulation header of RFC 4391, section 6, in bytes.
pub const ENCAPSULATION: u32 = 4;

/// The smallest MTU that the kernel's IPoIB accepts (`ipoib_change_mtu`).
pub const MTU_MIN: u32 = 68 + ENCAPSULATION;

/// What an interface has that carries IP over InfiniBand.
pub struct Ip {
    /// What it is a child of.
    pub parent: Option<DeviceId>,
    /// The name of that now.
    pub parent_name: Option<String>,
    /// What was asked for.
    pub spec: IpoibConfig,
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
    /// Groups that its port may be attached to, for all its interfaces.
    pub groups_max: usize,
    /// The 20-byte address.
    pub address: HardwareAddress,
    /// What bounds its MTU.
    pub limits: MtuLimits,
    /// The bridge that the interface is a port of.
    pub bridge: Option<u32>,
    /// Interfaces of this daemon that it reaches without the wire, as the data threads have them.
    pub siblings: Arc<[Sibling]>,
    /// What `umcast` was set to. Without effect: a program of the user's that joins groups itself is
    /// attached to them beside us.
    pub umcast: bool,
    /// The groups of its endpoint, the broadcast group included.
    pub groups: GroupSet,
    /// It was told that hosts behind it have joined more groups than there is room for.
    pub told_groups_full: bool,
    /// The groups that the host itself has joined, as last read.
    pub host_groups: BTreeSet<IpAddr>,
    /// What is behind it besides the host.
    pub guests: Guests,
    /// Addresses that two hosts were seen to claim, so that each is logged once.
    pub conflicts: BTreeSet<IpAddr>,
    /// That signed neighbour discovery passes has been logged.
    pub told_signed: bool,
    /// When it was made.
    pub created: ipoib::Time,
    /// Addresses of the host, to be announced when the link's address changes.
    pub addresses: BTreeSet<IpAddr>,
}

/// Where an interface is made.
pub struct Site<'a> {
    /// What it becomes a child of, and the name of that.
    pub parent: Option<(DeviceId, String)>,
    /// Its TAP.
    pub tap: TapSite<'a>,
    /// The id of its fabric port.
    pub port_id: PortId,
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

impl Ip {
    /// Makes endpoint and TAP and hands a lane to each data thread.
    ///
    /// # Errors
    /// [`DeviceError`]; nothing is left behind.
    pub fn create(
        id: DeviceId,
        spec: &IpoibConfig,
        site: &mut Site<'_>,
    ) -> Result<(Interface, Ip), DeviceError> {
        let limits = MtuLimits::of(site.port);
        let mtu = limits.wanted(spec, spec.mode)?;
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
    ) -> Result<(Interface, Ip), DeviceError> {
        let attributes = site.port.attributes();
        let queues = spec.queue_count().clamp(1, site.threads.len().max(1));
        let (mut interface, origin) =
            Interface::open(id, site.port_id, &spec.interface, queues, &mut site.tap)?;
        let connections = match limits.has_connections() {
            true => spec.connections,
            false => 0,
        };
        let capabilities = site.port.capabilities();
        let offers = connections != 0 && site.takes_requests(capabilities.services);
        let address = hardware_address(spec.mode, offers, endpoint.qpn, attributes.gid);
        let mut ip = Ip {
            parent: site.parent.as_ref().map(|(id, _)| *id),
            parent_name: site.parent.as_ref().map(|(_, name)| name.clone()),
            spec: spec.clone(),
            endpoint,
            mode: spec.mode,
            connections,
            services: capabilities.services,
            offers,
            groups_max: capabilities.groups_max,
            address,
            limits,
            bridge: None,
            siblings: Arc::default(),
            umcast: false,
            groups: GroupSet::new(Bounds::of(&capabilities), drawn()),
            told_groups_full: false,
            host_groups: BTreeSet::new(),
            // Nobody has the address that peers see us under.
            guests: Guests::new(ipoib::peer_mac(&address)),
            conflicts: BTreeSet::new(),
            told_signed: false,
            created: now(),
            addresses: BTreeSet::new(),
        };
        let setup = Setup {
            mac: Some(ipoib::local_mac(
                attributes.gid,
                spec.pkey,
                &spec.identity(),
            )),
            mtu,
            keeps_mtu: &|link| ip.keeps_mtu(link),
            gso_max: ip.gso_max(),
            alias: ip.alias(&interface, &attributes.name),
            up: spec.up,
        };
        let netns = spec.netns.as_deref();
        let prepared = interface.prepare(&origin, netns, site.tap.netlink, &setup);
        match prepared {
            Ok(up) => ip.join_broadcast(&interface, site.port, up),
            Err(e) => {
                interface.undo(spec.persist);
                return Err(e);
            }
        }
        ip.hand_out(&interface, site.threads);
        fdstore::keep(&spec.interface, &interface.tap);
        Ok((interface, ip))
    }

    /// Attaches to the broadcast group, without which there is no link, unless it stays down.
    fn join_broadcast(&mut self, interface: &Interface, port: &mut dyn Port, up: bool) {
        if self.endpoint.pkey.is_some() && up {
            let wanted = (Some(self.broadcast()), BTreeSet::new());
            let (set, id) = (&mut self.groups, self.endpoint.id);
            groups::follow(set, now(), &interface.name, wanted, |joins, leaves| {
                port.change_groups(id, joins, leaves)
            });
        }
    }

    /// Its broadcast group.
    pub fn broadcast(&self) -> Gid {
        ipoib::broadcast_mgid(self.spec.pkey, SCOPE)
    }

    /// Whether the MTU of an interface that was there is the administrator's wish, and one of the mode's: a
    /// daemon left it behind in this mode, or it is another one than a TAP begins with.
    fn keeps_mtu(&self, link: &rtnl::Link) -> bool {
        let served = link.alias.as_deref().and_then(Alias::parse);
        let is_wish = match served {
            Some(served) => served.mode == self.mode,
            // The administrator's own alias does not tell the mode: what is usual in either is
            // nobody's wish.
            None if !Alias::is_free(link.alias.as_deref()) => {
                let modes = [ipoib::Mode::Datagram, ipoib::Mode::Connected];
                let usual = modes.map(|mode| *self.limits.allowed(mode).end());
                link.mtu != TAP_MTU && !usual.contains(&link.mtu)
            }
            None => self.parent.is_some() && link.mtu != TAP_MTU,
        };
        is_wish && self.spec.mtu.is_none() && self.limits.allowed(self.mode).contains(&link.mtu)
    }

    /// What the alias says that the interface is, on this port.
    pub fn alias(&self, interface: &Interface, port: &str) -> String {
        let alias = Alias {
            port: port.to_owned(),
            gid: interface.namespace.map(|_| self.address.gid()),
            parent: self.parent_name.clone(),
            pkey: self.spec.pkey,
            mode: self.mode,
        };
        alias.to_string()
    }

    /// The mode as the administrator knows it, the last word of the alias.
    pub fn mode_word(&self) -> String {
        self.mode.to_string()
    }

    /// Its address on a port with this GID, in the mode that it has now.
    pub fn address_at(&self, gid: Gid) -> HardwareAddress {
        hardware_address(self.mode, self.offers, self.endpoint.qpn, gid)
    }

    /// The largest send that the host gives to the interface at once. In connected mode a send has to hold a
    /// packet of the largest MTU.
    pub fn gso_max(&self) -> u32 {
        self.gso_max_stacked(self.guests.is_stacked())
    }

    /// The same, if something is stacked on the interface or is not.
    pub fn gso_max_stacked(&self, stacked: bool) -> u32 {
        match self.mode {
            Mode::Datagram if !stacked => GSO_MAX,
            _ => GSO_MAX_WHOLE,
        }
    }

    /// Whether it may be attached to groups: it is up, and its partition is there (kernel
    /// ipoib_multicast.c, `ipoib_mcast_attach`: ENXIO).
    pub fn holds_groups(&self, interface: &Interface) -> bool {
        interface.up && self.endpoint.pkey.is_some()
    }

    /// The groups that the interface should be attached to: the broadcast group, the all-hosts groups
    /// that nobody reports (RFC 1112, RFC 4861), what the host has joined, and what hosts behind the
    /// interface have.
    /// True if there are more than it may have.
    pub fn wanted_groups(&self, host: &BTreeSet<IpAddr>) -> (BTreeSet<Gid>, bool) {
        let most = groups_with_behind_max(self.groups_max);
        groups_of(self.spec.pkey, SCOPE, host, &self.guests, most)
    }
}

/// As [`Ip::wanted_groups`], for a link of this partition and scope, where those of hosts behind it
/// end at `most`.
pub fn groups_of(
    pkey: PKey,
    scope: u8,
    host: &BTreeSet<IpAddr>,
    guests: &Guests,
    most: usize,
) -> (BTreeSet<Gid>, bool) {
    let mgid = |ip| ipoib::mgid(ip, pkey, scope);
    let own = host.iter().chain(&ALL_HOSTS).copied();
    let mut wanted: BTreeSet<Gid> = own.filter_map(mgid).collect();
    wanted.insert(ipoib::broadcast_mgid(pkey, scope));
    for group in guests.groups().filter_map(mgid) {
        if wanted.len() >= most && !wanted.contains(&group) {
            return (wanted, true);
        }
        wanted.insert(group);
    }
    (wanted, guests.turned_away() != 0)
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
    fn equal_names_in_other_namespaces_are_other_interfaces() {
        let configured = |netns: &str| {
            let text = format!("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n{netns}");
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
