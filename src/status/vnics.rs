//! Answers about VNICs to the control socket.

use std::collections::BTreeMap;
use std::process;

use control::api::{
    ApiError, Counters, FabricAddress, InterfaceKind, LinkAddress, MacSource, Reply, Selection,
    VnicInfo, VnicMac, VnicMember, VnicStats,
};
use fabric::Gid;
use vnic::counters::DRIVER_COUNTERS;
use vnic::port::Place as MacPlace;
use vnic::{Lid, Mac};

use super::{View, worker_stats};
use crate::ethernet::{Ethernet, Management, now, parts};
use crate::interface::{Interface, Names};

/// A VNIC to show.
type Shown<'d> = (&'d Interface, &'d Ethernet);

impl View<'_> {
    fn selected_vnics(&self, which: &Selection) -> Result<Vec<Shown<'_>>, ApiError> {
        match &which.interface {
            Some(name) => Ok(vec![self.interfaces.named_ethernet(self.home, name)?]),
            None => Ok(self.interfaces.ethernets().collect()),
        }
    }

    /// The properties of VNICs.
    ///
    /// # Errors
    /// As [`crate::interfaces::Interfaces::named_ethernet`].
    pub(crate) fn show_vnics(&self, which: &Selection) -> Result<Reply, ApiError> {
        let names = Names::read();
        let vnics = self.selected_vnics(which)?.into_iter();
        let vnics = vnics.map(|vnic| self.vnic_info(vnic, &names)).collect();
        Ok(Reply::Vnics { vnics })
    }

    fn vnic_info(&self, (i, v): Shown<'_>, names: &Names) -> VnicInfo {
        let port = self.ports[i.port].port.attributes();
        let runs_on = self.ports[i.port].port.device();
        let attached = |group: &Gid| {
            let link = v.link.as_ref();
            link.is_some_and(|link| link.groups.is_attached(*group))
        };
        let group = v.group().filter(attached);
        let defaults = v.info.u_ucast_dlid.iter().enumerate();
        let defaults = defaults.filter(|(slot, _)| v.info.def_port_mask >> slot & 1 != 0);
        VnicInfo {
            name: i.name.clone(),
            kind: InterfaceKind::Vnic,
            ifindex: i.ifindex,
            underlay: runs_on.netdev,
            link_layer: runs_on.link_layer,
            state: port.state,
            reason: self.interfaces.vnic_no_carrier(self.ports, i, v),
            up: i.up,
            carrier: i.carrier,
            managed: v.spec.switch.is_none(),
            manager: self.manager_of(i, v),
            index: v.spec.index,
            vesw: v.info.vesw_id,
            fabric_id: v.info.fabric_id,
            lid: v.lid(),
            config_state: v.info.config_state,
            oper_state: v.oper_state(i),
            pkey: v.entry().unwrap_or(v.info.pkey),
            qkey: v.qkey(),
            qpn: v.qpn(),
            gid: port.gid,
            mac: LinkAddress(i.mac),
            base_mac: LinkAddress(v.info.base_mac_addr),
            multicast_lid: v.info.u_mcast_dlid,
            group,
            default_lids: defaults.map(|(_, lid)| *lid).collect(),
            mtu: i.mtu,
            mtu_max: *v.allowed_mtu().end(),
            link_mtu: port.ud_payload_max,
            learning: v.spec.learning.on,
            ageing: v.spec.learning.ageing,
            mac_limit: count(v.spec.learning.mac_limit),
            table_entries: count(v.table.len()),
            table_digest: v.table.digest(),
            peers: count(v.directory.nodes.len()),
            closed: v.directory.closed,
            netns: i.namespace.as_ref().map(|there| names.of(there)),
            queues: count(i.queues.len()),
            persist: v.spec.persist,
            pid: process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            port: port.name,
        }
    }

    /// The counters of VNICs.
    ///
    /// # Errors
    /// As [`crate::interfaces::Interfaces::named_ethernet`] and [`crate::port::Ports::snapshots`].
    pub(crate) fn vnic_stats(&self, which: &Selection) -> Result<Reply, ApiError> {
        let selected = self.selected_vnics(which)?;
        let ports = selected.iter().map(|(i, _)| i.port).collect();
        let snapshots = self.ports.snapshots(ports, false)?;
        let names = Names::read();
        let stats = selected.into_iter().map(|(i, v)| {
            let port = self.ports[i.port].port.attributes().name;
            let snapshots = &snapshots[&i.port];
            let (counters, tap) = v.count(i.id, snapshots);
            let named = counters.named();
            let (driver, own) = named.split_at(DRIVER_COUNTERS);
            VnicStats {
                name: i.name.clone(),
                netns: i.namespace.as_ref().map(|there| names.of(there)),
                driver: driver.iter().copied().collect(),
                port: own.iter().copied().collect(),
                device: tap.named().into_iter().collect::<Counters>(),
                management: self.management_counters(i, v),
                workers: worker_stats(&port, snapshots),
            }
        });
        Ok(Reply::VnicStats {
            stats: stats.collect(),
        })
    }

    /// The MACs that a VNIC knows.
    ///
    /// # Errors
    /// As [`crate::interfaces::Interfaces::named_ethernet`]; [`ApiError::Busy`] if the data threads do not
    /// answer.
    pub(crate) fn vnic_macs(&self, name: &str) -> Result<Reply, ApiError> {
        let (i, v) = self.interfaces.named_ethernet(self.home, name)?;
        let snapshots = self.ports[i.port].snapshots_of(i.id.link());
        if v.link.is_some() && parts(&snapshots, i.id).next().is_none() {
            return Err(ApiError::Busy);
        }
        let mut nodes = BTreeMap::new();
        let mut learned: BTreeMap<Mac, (Lid, MacSource, u64)> = BTreeMap::new();
        for part in parts(&snapshots, i.id) {
            nodes.extend(part.nodes.iter().map(|node| (node.lid, node.address)));
            for mac in &part.macs {
                let (lid, source) = match mac.place {
                    MacPlace::At(lid) => (lid, MacSource::Learned),
                    MacPlace::Here => (v.lid(), MacSource::Local),
                };
                let idle = u64::from(mac.age) * 1000;
                let known = learned.entry(mac.mac).or_insert((lid, source, idle));
                // The latest observation counts.
                if idle < known.2 {
                    *known = (lid, source, idle);
                }
            }
        }
        let row = |mac: Mac, lid: Lid, source, index, idle_ms| {
            let address = nodes.get(&lid);
            VnicMac {
                mac: LinkAddress(mac),
                lid,
                source,
                index,
                idle_ms,
                gid: address.map(|a| a.gid),
                qpn: address.map(|a| a.qpn).filter(|qpn| qpn.get() != 0),
            }
        };
        let own = row(i.mac, v.lid(), MacSource::Local, None, None);
        let table = v.table.entries().filter(|(_, entry)| !entry.is_source());
        let table = table.map(|(place, entry)| {
            let index = u16::try_from(place).ok();
            row(entry.mac, entry.lid(), MacSource::Table, index, None)
        });
        let learned = learned
            .into_iter()
            .map(|(mac, (lid, source, idle))| row(mac, lid, source, None, Some(idle)));
        let mut macs: Vec<VnicMac> = std::iter::once(own).chain(table).chain(learned).collect();
        macs.sort_by_key(|m| (m.mac.0, m.source));
        Ok(Reply::VnicMacs { macs })
    }
}

impl View<'_> {
    /// The counters of a managed VNIC's agent.
    pub fn management_counters(
        &self,
        interface: &Interface,
        ethernet: &Ethernet,
    ) -> control::api::Counters {
        let management = self.interfaces.management(interface.port);
        let its = management.filter(|_| ethernet.spec.switch.is_none());
        its.map(Management::counters).unwrap_or_default()
    }

    /// The manager of a VNIC.
    pub fn manager_of(&self, interface: &Interface, ethernet: &Ethernet) -> Option<FabricAddress> {
        let management = self.interfaces.management(interface.port)?;
        let owner = management.agent.as_ref()?.owner(now())?;
        let (gid, qpn) = (owner.gid, owner.qpn);
        let is_managed = ethernet.spec.switch.is_none();
        is_managed.then_some(FabricAddress { gid, qpn })
    }

    /// The members of a VNIC's switch.
    ///
    /// # Errors
    /// As [`View::vnic_macs`].
    pub(crate) fn vnic_members(&self, name: &str) -> Result<Reply, ApiError> {
        let (i, v) = self.interfaces.named_ethernet(self.home, name)?;
        let snapshots = self.ports[i.port].snapshots_of(i.id.link());
        if v.link.is_some() && parts(&snapshots, i.id).next().is_none() {
            return Err(ApiError::Busy);
        }
        let mut members: BTreeMap<Lid, VnicMember> = BTreeMap::new();
        for node in parts(&snapshots, i.id).flat_map(|part| &part.nodes) {
            let qpn = Some(node.address.qpn).filter(|qpn| qpn.get() != 0);
            let member = members.entry(node.lid).or_insert(VnicMember {
                lid: node.lid,
                gid: node.address.gid,
                qpn,
                listed: node.listed,
            });
            member.qpn = member.qpn.or(qpn);
        }
        Ok(Reply::VnicMembers {
            members: members.into_values().collect(),
        })
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
