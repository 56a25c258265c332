//! Answers about children and VLANs to the control socket.

use control::api::{ApiError, ChildInfo, Reply, Selection};

use super::View;
use crate::interface::{Interface, InterfaceId, Names};
use crate::ip::{Ip, IpLink, no_broadcast_group};

impl View<'_> {
    /// The children and VLANs of all interfaces or of one; or one child.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`].
    pub fn children(&self, selection: &Selection) -> Result<Reply, ApiError> {
        let of = match &selection.interface {
            Some(name) => Some(self.interfaces.named_ip(self.home, name)?.0.id),
            None => None,
        };
        let concerned = |id: InterfaceId, ip: &Ip| {
            ip.parent.is_some() && of.is_none_or(|of| ip.parent == Some(of) || id == of)
        };
        let names = Names::read();
        let children = self.interfaces.ips();
        let children = children
            .filter(|(interface, ip)| concerned(interface.id, ip))
            .map(|(interface, ip)| self.child_info(interface, ip, &names))
            .chain(self.vlan_children(of, &names))
            .collect();
        Ok(Reply::Children { children })
    }

    fn child_info(&self, interface: &Interface, ip: &Ip, names: &Names) -> ChildInfo {
        ChildInfo {
            name: interface.name.clone(),
            parent: ip.parent_name.clone().unwrap_or_default(),
            pkey: ip.spec.pkey,
            entry: ip.link.fabric.endpoint.pkey,
            mode: ip.mode,
            mtu: interface.mtu,
            netns: interface.namespace.as_ref().map(|there| names.of(there)),
            carrier: interface.carrier,
            reason: self.interfaces.ip_no_carrier(self.ports, interface, ip),
        }
    }

    /// The links of VLANs, in the form of children: those `of` one interface, or all.
    pub fn vlan_children(&self, of: Option<InterfaceId>, names: &Names) -> Vec<ChildInfo> {
        let all = self.interfaces.ips();
        let all = all.filter(|(interface, _)| of.is_none_or(|of| of == interface.id));
        all.flat_map(|(interface, ip)| {
            let vlans = ip.vlans.values();
            vlans.map(move |link| self.vlan_child(interface, ip, link, names))
        })
        .collect()
    }

    fn vlan_child(
        &self,
        interface: &Interface,
        ip: &Ip,
        link: &IpLink,
        names: &Names,
    ) -> ChildInfo {
        let missed = link.fabric.groups.missing();
        ChildInfo {
            name: link.name(interface),
            parent: interface.name.clone(),
            pkey: link.fabric.pkey,
            entry: link.fabric.endpoint.pkey,
            mode: ip.mode,
            mtu: interface.mtu,
            netns: interface.namespace.as_ref().map(|there| names.of(there)),
            carrier: interface.carrier && missed.is_none(),
            reason: self
                .interfaces
                .ip_no_carrier(self.ports, interface, ip)
                .or_else(|| missed.map(no_broadcast_group)),
        }
    }
}
