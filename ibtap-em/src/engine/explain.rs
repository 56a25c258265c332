//! Destination of a frame, with the reason.

use proto::Mac;
use vnic::Lid;

use super::Engine;
use super::target::{Target, lid_in};
use crate::api::{ExplainRequest, Explanation, MacOrigin};
use crate::config::SwitchConfig;

/// Bit of the first byte that marks a multicast address.
const GROUP: u8 = 1;

impl Engine {
    pub(super) fn explain_frame(&self, request: &ExplainRequest) -> Result<Explanation, String> {
        let config = self.find_switch(&request.vesw)?;
        if request.vid.is_some_and(|vid| vid > 4095) {
            return Err(format!(
                "the VLAN {} is out of range; use 0 to 4095",
                request.vid.unwrap_or_default()
            ));
        }
        if request.pcp > 7 {
            return Err(format!(
                "the priority {} is out of range; use 0 to 7",
                request.pcp
            ));
        }
        let mac = request.dst.0;
        let target = self.switches.get(&config.id).map(|s| &*s.target);
        let (dlid, why) = match target {
            Some(target) => self.decide(config, target, mac),
            None => (Lid::NONE, "the switch is not set up yet".into()),
        };
        let port = self.lids.get(&dlid).map(|key| self.name(*key));
        let listeners_only = dlid.is_multicast() && dlid != config.u_mcast_dlid;
        Ok(Explanation {
            vesw: config.name.clone(),
            dst: request.dst,
            dlid,
            port,
            listeners_only,
            sc: service_class(config, request),
            // The class of a flow depends on its protocol, which the request does not have: the default
            // class.
            rc: (config.rc & 7) as u8,
            why,
        })
    }

    /// The rules of members (kernel opa_vnic_encap.c, `opa_vnic_get_dlid`), without learning.
    fn decide(&self, config: &SwitchConfig, target: &Target, mac: Mac) -> (Lid, String) {
        let origin = |mac| target.sources.get(&mac).map(|source| source.origin);
        if let Some(dlid_sd) = target.content.get(&mac) {
            let known = match origin(mac) {
                Some(MacOrigin::Static) => "from static_macs",
                Some(MacOrigin::Base) => "assigned to the port",
                Some(MacOrigin::Group) => "from groups",
                _ => "reported by the port's agent",
            };
            return (Lid::new(dlid_sd >> 8), format!("in the MAC table: {known}"));
        }
        if mac[0] & GROUP != 0 {
            let why = match mac {
                [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => "broadcast goes to u_mcast_dlid",
                _ => "multicast goes to u_mcast_dlid",
            };
            return (config.u_mcast_dlid, why.into());
        }
        let lid = lid_in(mac);
        let member = |lid: &Lid| {
            target
                .directory
                .binary_search_by_key(lid, |(l, _)| *l)
                .is_ok()
        };
        if let Some(lid) = lid.filter(member) {
            let why = "not in the MAC table; locally administered, and its last three bytes are the LID of a member";
            return (lid, why.into());
        }
        let flood =
            "ports with learning flood the frame until they learn the address, others drop it";
        let first = (0..16).find(|slot| target.def_port_mask & 1 << slot != 0);
        match (lid, first) {
            (Some(lid), _) => (
                Lid::NONE,
                format!(
                    "not in the MAC table; locally administered, but no member has the LID {lid} of its \
                     last three bytes; {flood}"
                ),
            ),
            (None, Some(slot)) => {
                let many = target.def_port_mask.count_ones();
                let which = match many {
                    1 => "the frame goes to the default port".into(),
                    many => {
                        format!("its flow selects one of {many} default ports, for example that")
                    }
                };
                let why = format!("not in the MAC table; {which} of slot {slot}");
                (target.default_lids[slot], why)
            }
            (None, None) => (
                Lid::NONE,
                format!("not in the MAC table, and no default port; {flood}"),
            ),
        }
    }
}

fn service_class(config: &SwitchConfig, request: &ExplainRequest) -> u8 {
    let classes = &config.classes;
    let group = request.dst.0[0] & GROUP != 0;
    let pcp = usize::from(request.pcp & 7);
    match (request.vid, group) {
        (Some(_), false) => classes.pcp_unicast[pcp],
        (Some(_), true) => classes.pcp_multicast[pcp],
        (None, false) => classes.unicast,
        (None, true) => classes.multicast,
    }
}
