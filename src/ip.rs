//! What only interfaces have that carry IP over InfiniBand: an IP link of the fabric, and what the control
//! thread keeps about it.

mod guests;
mod lanes;
mod link;
mod mtu;
mod vlans;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use control::config::{IpoibConfig, QpnChoice};
use fabric::{FabricError, Gid, Port, Services};
use ipoib::Mode;

use crate::datapath::{LinkId, Mailbox};
use crate::fdstore;
use crate::interface::InterfaceId;
use crate::interface::groups::Bounds;
use crate::interface::{
    Alias, FabricLink, GSO_MAX, GSO_MAX_WHOLE, Interface, InterfaceError, Setup, TAP_MTU,
    TapSources,
};
use crate::port::{PortId, PortRuntime};

pub use guests::Guests;
pub use lanes::share;
pub use link::{IpLink, VLAN, groups_with_guests_max, hardware_address};
pub use mtu::{CONNECTED_MTU, MtuLimits};
pub use vlans::{Trunk, pkey_of};

/// The encapsulation header of RFC 4391, section 6, in bytes.
pub const ENCAPSULATION: u32 = 4;

/// The smallest MTU that the kernel's IPoIB accepts (`ipoib_change_mtu`).
pub const MTU_MIN: u32 = 68 + ENCAPSULATION;

/// What an interface has that carries IP over InfiniBand.
pub struct Ip {
    /// What it is a child of.
    pub parent: Option<InterfaceId>,
    /// The name of that now.
    pub parent_name: Option<String>,
    /// What was asked for.
    pub spec: IpoibConfig,
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
    /// What bounds its MTU.
    pub limits: MtuLimits,
    /// The bridge that the interface is a port of.
    pub bridge: Option<u32>,
    /// What `umcast` was set to. Without effect: a program of the user's that joins groups itself is
    /// attached to them beside us.
    pub umcast: bool,
    /// Addresses that two hosts were seen to claim, so that each is logged once.
    pub conflicts: BTreeSet<IpAddr>,
    /// That signed neighbour discovery passes has been logged.
    pub told_signed: bool,
    /// Its own link.
    pub link: IpLink,
    /// The links that tags on its frames select, by VLAN id.
    pub vlans: BTreeMap<u16, IpLink>,
    /// What else is kept of them, while tags select any.
    pub trunk: Option<Trunk>,
}

/// Where an interface is made.
pub struct IpContext<'a> {
    /// What it becomes a child of, and the name of that.
    pub parent: Option<(InterfaceId, String)>,
    /// Its TAP.
    pub tap: TapSources<'a>,
    /// The id of its fabric port.
    pub port_id: PortId,
    /// Its fabric port.
    pub port: &'a mut dyn Port,
    /// Peers may be the kernel's IPoIB.
    pub kernel_peers: bool,
    /// The port's data threads.
    pub threads: &'a [Mailbox],
}

impl IpContext<'_> {
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
    /// [`InterfaceError`]; nothing is left behind.
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
            // The error that is reported is the one that came first.
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
        let (mut interface, origin) =
            Interface::open(id, site.port_id, &spec.interface, queues, &mut site.tap)?;
        let connections = match limits.has_connections() {
            true => spec.connections,
            false => 0,
        };
        let capabilities = site.port.capabilities();
        let offers = connections != 0 && site.takes_requests(capabilities.services);
        let qpn = link.endpoint.qpn;
        let address = hardware_address(spec.mode, offers, qpn, attributes.gid);
        let mut ip = Ip {
            parent: site.parent.as_ref().map(|(id, _)| *id),
            parent_name: site.parent.as_ref().map(|(_, name)| name.clone()),
            spec: spec.clone(),
            mode: spec.mode,
            connections,
            services: capabilities.services,
            offers,
            groups_max: capabilities.groups_max,
            limits,
            bridge: None,
            umcast: false,
            conflicts: BTreeSet::new(),
            told_signed: false,
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
        let link = &mut self.link;
        if link.fabric.endpoint.pkey.is_some() && up {
            let wanted = (Some(link.broadcast()), BTreeSet::new());
            link.fabric.follow_groups(&interface.name, wanted, port);
        }
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
            gid: interface.namespace.map(|_| self.link.address.gid()),
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

    /// The interface's own link and those that tags select.
    pub fn links(&self) -> impl Iterator<Item = &IpLink> {
        std::iter::once(&self.link).chain(self.vlans.values())
    }

    /// The same, to be changed.
    pub fn links_mut(&mut self) -> impl Iterator<Item = &mut IpLink> {
        std::iter::once(&mut self.link).chain(self.vlans.values_mut())
    }

    /// The link with this id.
    pub fn link_mut(&mut self, id: LinkId) -> Option<&mut IpLink> {
        self.links_mut().find(|link| link.id() == id)
    }

    /// Gives all links the addresses that they have in the mode that the interface has now, and with the
    /// queue pairs that they have now; on a port with this GID, if that is another one now.
    pub fn readdress(&mut self, gid: Option<Gid>) {
        let (mode, offers) = (self.mode, self.offers);
        for link in self.links_mut() {
            let gid = gid.unwrap_or(link.address.gid());
            link.address = hardware_address(mode, offers, link.fabric.endpoint.qpn, gid);
        }
    }

    /// Has the lanes of all links be as the interface is now.
    pub fn update_lanes(&mut self, interface: &Interface, port: &PortRuntime) {
        let own = self.lane_settings(interface);
        self.links_mut()
            .for_each(|link| link.update_lanes(&own, port));
    }

    /// The largest send that the host gives to the interface at once. In connected mode a send has to hold a
    /// packet of the largest MTU.
    pub fn gso_max(&self) -> u32 {
        self.gso_max_stacked(self.link.guests.is_stacked())
    }

    /// The same, if something is stacked on the interface or is not.
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
            "{}: the queue pair number {asked} is in use; it has {} instead",
            spec.name,
            link.endpoint.qpn
        );
    }
    Ok(link)
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
