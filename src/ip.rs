//! The payload of IPoIB interfaces: IP links and the state that the control thread keeps for them.

mod addresses;
mod carrier;
mod guests;
mod lanes;
mod link;
mod mode;
mod mtu;
mod stacking;
mod vlans;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use control::config::{IpoibConfig, QpnChoice};
use fabric::{FabricError, Gid, Port, Services};
use ipoib::{Mode, Pins};
use proto::{LogLimiter, Pin};

use crate::datapath::{LinkId, Mailbox};
use crate::fdstore;
use crate::interface::groups::Bounds;
use crate::interface::{
    Alias, FabricLink, GSO_MAX, GSO_MAX_WHOLE, Interface, InterfaceError, InterfaceId, Setup,
    TAP_MTU, TapSources,
};
use crate::port::{PortId, PortRuntime};

pub use carrier::no_broadcast_group;
pub use guests::Guests;
pub use lanes::share;
pub use link::{IpLink, VLAN, groups_with_guests_max, hardware_address};
pub use mtu::{CONNECTED_MTU, MtuLimits};
pub use vlans::{Trunk, pkey_of};

/// The encapsulation header of RFC 4391, section 6, in bytes.
pub const ENCAPSULATION: u32 = 4;

/// The minimum time between two warnings about suspicious claims, in milliseconds.
const CLAIMS_APART_MS: u64 = 60_000;

/// The smallest MTU of the kernel's IPoIB in bytes (`ipoib_change_mtu`).
pub const MTU_MIN: u32 = 68 + ENCAPSULATION;

/// The payload of an IPoIB interface.
pub struct Ip {
    /// The parent of a child.
    pub parent: Option<InterfaceId>,
    /// The parent's current name.
    pub parent_name: Option<String>,
    /// The configuration.
    pub spec: IpoibConfig,
    /// Adopted in a network namespace without a name, apart from its parent, so that `spec` has the key of another
    /// interface.
    pub is_in_unnamed: bool,
    /// The current mode.
    pub mode: Mode,
    /// Maximum number of connections; 0 if the port supports none.
    pub connections: usize,
    /// The services that connection requests on the port may name.
    pub services: Services,
    /// Peers may request connections: in connected mode the address has the flag.
    pub offers: bool,
    /// Maximum number of groups of the port, for all its interfaces.
    pub groups_max: usize,
    /// The limits of the MTU.
    pub limits: MtuLimits,
    /// The bridge that the interface is a port of.
    pub bridge: Option<u32>,
    /// The flag `umcast`. No effect: a program that joins groups with its own queue pair does not affect
    /// ours.
    pub umcast: bool,
    /// Addresses with logged conflicts, so that each is logged once.
    pub conflicts: BTreeSet<IpAddr>,
    /// The neighbours of the configuration, by IP address; `None`: none.
    pub pins: Option<Arc<Pins>>,
    /// The warnings about suspicious claims.
    pub suspicious_claims: LogLimiter,
    /// The warning about signed neighbour discovery was logged.
    pub logged_signed: bool,
    /// The host's addresses, which the interface's own link announces when its address changes. Hosts of VLANs are
    /// guests: the cores know their addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// The interface's own link.
    pub link: IpLink,
    /// The links of VLANs, by VLAN id.
    pub vlans: BTreeMap<u16, IpLink>,
    /// State of the VLANs, while tags select partitions.
    pub trunk: Option<Trunk>,
}

/// The context for the creation of an interface.
pub struct IpContext<'a> {
    /// The parent's id and name.
    pub parent: Option<(InterfaceId, String)>,
    /// The source of the TAP.
    pub tap: TapSources<'a>,
    /// The id of the fabric port.
    pub port_id: PortId,
    /// The fabric port.
    pub port: &'a mut dyn Port,
    /// Peers may be the kernel's IPoIB.
    pub kernel_peers: bool,
    /// The port's data threads.
    pub threads: &'a [Mailbox],
}

/// Whether the connection requests of all peers arrive. Over rdma_cm's services, those of the kernel's IPoIB do
/// not: it would repeat requests to an interface that offers connections, and send it no packets meanwhile. On
/// InfiniBand such peers are the rule; elsewhere they exist if `kernel_peers`.
fn takes_requests(services: Services, kernel_peers: bool) -> bool {
    match services {
        Services::Any | Services::InfiniBand => true,
        Services::RdmaCm => !kernel_peers,
        Services::RdmaCmInfiniBand => false,
    }
}

impl Ip {
    /// Creates endpoint and TAP, and gives a lane to each data thread.
    ///
    /// # Errors
    /// [`InterfaceError`]. Nothing stays behind.
    pub fn create(
        id: InterfaceId,
        spec: &IpoibConfig,
        site: &mut IpContext<'_>,
    ) -> Result<(Interface, Ip), InterfaceError> {
        let limits = MtuLimits::of(site.port);
        let mtu = limits.wanted(spec, spec.mode)?;
        let link = open_link(id, spec, site.port)?;
        let endpoint = link.endpoint.id;
        let made = Self::with_link(id, spec, site, link, mtu, limits);
        if made.is_err() {
            // The first error is reported, not this one.
            let _ = site.port.destroy_ud(endpoint);
        }
        made
    }

    fn with_link(
        id: InterfaceId,
        spec: &IpoibConfig,
        site: &mut IpContext<'_>,
        link: FabricLink,
        mtu: u32,
        limits: MtuLimits,
    ) -> Result<(Interface, Ip), InterfaceError> {
        let attributes = site.port.attributes();
        let queues = spec.queue_count().clamp(1, site.threads.len().max(1));
        let is_found = site.tap.found.is_some();
        let expected = site.tap.namespace.as_ref();
        let expected = expected.and_then(|there| there.id().ok());
        let (mut interface, origin) =
            Interface::open(id, site.port_id, &spec.interface, queues, &mut site.tap)?;
        let connections = match limits.has_connections() {
            true => spec.connections,
            false => 0,
        };
        let capabilities = site.port.capabilities();
        let takes = takes_requests(capabilities.services, site.kernel_peers);
        let offers = connections != 0 && takes;
        let qpn = link.endpoint.qpn;
        let address = hardware_address(spec.mode, offers, qpn, attributes.gid);
        let mut ip = Ip {
            parent: site.parent.as_ref().map(|(id, _)| *id),
            parent_name: site.parent.as_ref().map(|(_, name)| name.clone()),
            spec: spec.clone(),
            is_in_unnamed: is_found && interface.namespace != expected && spec.netns.is_none(),
            mode: spec.mode,
            connections,
            services: capabilities.services,
            offers,
            groups_max: capabilities.groups_max,
            limits,
            bridge: None,
            umcast: false,
            conflicts: BTreeSet::new(),
            pins: pins(&spec.neighbours),
            suspicious_claims: LogLimiter::new(CLAIMS_APART_MS),
            logged_signed: false,
            addresses: BTreeSet::new(),
            link: IpLink::new(link, None, address),
            vlans: BTreeMap::new(),
            trunk: None,
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
                interface.abandon(spec, &origin);
                return Err(e);
            }
        }
        ip.hand_out(&interface, site.threads, capabilities.first_receives);
        fdstore::keep(&spec.interface, &interface.tap);
        Ok((interface, ip))
    }

    /// Joins the broadcast group, which the link requires, if the interface is up or will be.
    fn join_broadcast(&mut self, interface: &Interface, port: &mut dyn Port, up: bool) {
        let link = &mut self.link;
        if link.fabric.endpoint.pkey.is_some() && up {
            let wanted = (Some(link.broadcast()), BTreeSet::new());
            link.fabric.follow_groups(&interface.name, wanted, port);
        }
    }

    /// Whether an existing TAP keeps its MTU: the mode allows it, and the administrator chose it, since a
    /// former daemon served the TAP in this mode, or the MTU is not the default of a TAP.
    fn keeps_mtu(&self, link: &rtnl::Link) -> bool {
        let served = link.alias.as_deref().and_then(Alias::parse);
        let is_wish = match served {
            Some(served) => served.mode == self.mode,
            // An alias of the administrator does not name the mode, so the usual MTU of either mode may be
            // just a default.
            None if !Alias::is_free(link.alias.as_deref()) => {
                let modes = [ipoib::Mode::Datagram, ipoib::Mode::Connected];
                let usual = modes.map(|mode| *self.limits.allowed(mode).end());
                link.mtu != TAP_MTU && !usual.contains(&link.mtu)
            }
            None => self.parent.is_some() && link.mtu != TAP_MTU,
        };
        is_wish && self.spec.mtu.is_none() && self.limits.allowed(self.mode).contains(&link.mtu)
    }

    /// The alias of the interface.
    pub fn alias(&self, interface: &Interface, port: &str) -> String {
        let alias = Alias {
            port: port.to_owned(),
            gid: interface.namespace.map(|_| self.link.address.gid()),
            parent: self.parent_name.clone(),
            pkey: self.spec.pkey,
            mode: self.mode,
        };
        alias.to_string()
    }

    /// The name of the mode, as in the alias.
    pub fn mode_word(&self) -> String {
        self.mode.to_string()
    }

    /// All links: the interface's own and those of VLANs.
    pub fn links(&self) -> impl Iterator<Item = &IpLink> {
        std::iter::once(&self.link).chain(self.vlans.values())
    }

    /// All links, mutable.
    pub fn links_mut(&mut self) -> impl Iterator<Item = &mut IpLink> {
        std::iter::once(&mut self.link).chain(self.vlans.values_mut())
    }

    /// The link with this id.
    pub fn link_mut(&mut self, id: LinkId) -> Option<&mut IpLink> {
        self.links_mut().find(|link| link.id() == id)
    }

    /// Sets the addresses of all links from the current mode, queue pairs and GID; `gid` is the port's new
    /// GID, if it changed.
    pub fn readdress(&mut self, gid: Option<Gid>) {
        let (mode, offers) = (self.mode, self.offers);
        for link in self.links_mut() {
            let gid = gid.unwrap_or(link.address.gid());
            link.address = hardware_address(mode, offers, link.fabric.endpoint.qpn, gid);
        }
    }

    /// The port's device came back. Peers may be unable to request connections now; an interface that
    /// did not offer any does not begin to.
    pub fn port_reopened(&mut self, port: &PortRuntime) {
        let services = port.port.capabilities().services;
        self.offers &= takes_requests(services, port.kernel_peers);
    }

    /// Updates the settings of all links' lanes.
    pub fn update_lanes(&mut self, interface: &Interface, port: &PortRuntime) {
        let own = self.lane_settings(interface);
        self.links_mut()
            .for_each(|link| link.update_lanes(&own, port));
    }

    /// The largest frame in bytes that the host sends to the interface. In connected mode, it holds a
    /// packet of the largest MTU.
    pub fn gso_max(&self) -> u32 {
        self.gso_max_stacked(self.link.guests.is_stacked())
    }

    /// As [`Ip::gso_max`], with another interface stacked on the interface or not.
    pub fn gso_max_stacked(&self, stacked: bool) -> u32 {
        match self.mode {
            Mode::Datagram if !stacked => GSO_MAX,
            _ => GSO_MAX_WHOLE,
        }
    }
}

fn open_link(
    id: InterfaceId,
    spec: &IpoibConfig,
    port: &mut dyn Port,
) -> Result<FabricLink, FabricError> {
    let wish = match spec.qpn {
        QpnChoice::Stable => Some(ipoib::local_qpn(
            port.attributes().gid,
            spec.pkey,
            &spec.identity(),
        )),
        QpnChoice::Random => None,
        QpnChoice::Number(qpn) => Some(qpn),
    };
    let bounds = Bounds::of(&port.capabilities());
    let keys = (spec.pkey, spec.qkey);
    let link = FabricLink::open(id.link(), keys, wish, bounds, port)?;
    if let QpnChoice::Number(asked) = spec.qpn
        && asked != link.endpoint.qpn
    {
        log::warn!(
            "{}: the queue pair number {asked} is in use; using {} instead",
            spec.name,
            link.endpoint.qpn
        );
    }
    Ok(link)
}

/// The neighbours of a configuration, for the data threads; `None`: none.
pub fn pins(neighbours: &[Pin]) -> Option<Arc<Pins>> {
    let all = neighbours.iter().map(|pin| (pin.ip, *pin));
    (!neighbours.is_empty()).then(|| Arc::new(all.collect()))
}

#[cfg(test)]
mod tests {
    use fabric::PKey;

    use super::*;

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
