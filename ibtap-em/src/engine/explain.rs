//! What becomes of a frame, and why.

use proto::Mac;
use vnic::Lid;

use super::Engine;
use super::target::{Target, lid_in};
use crate::api::{ExplainRequest, Explanation, MacOrigin};
use crate::config::SwitchConfig;

/// Of an address: it is a group's.
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
            // Its class depends on the protocol, which a destination does not tell.
            rc: (config.rc & 7) as u8,
            why,
        })
    }

    /// The rules that members have (kernel opa_vnic_encap.c, `opa_vnic_get_dlid`), what they learn left
    /// aside.
    fn decide(&self, config: &SwitchConfig, target: &Target, mac: Mac) -> (Lid, String) {
        let origin = |mac| target.sources.get(&mac).map(|source| source.origin);
        if let Some(dlid_sd) = target.content.get(&mac) {
            let known = match origin(mac) {
                Some(MacOrigin::Static) => "static_macs names it",
                Some(MacOrigin::Base) => "it was given to the port",
                Some(MacOrigin::Group) => "groups names it",
                _ => "the port's agent reports it",
            };
            return (
                Lid::new(dlid_sd >> 8),
                format!("the MAC table has it: {known}"),
            );
        }
        if mac[0] & GROUP != 0 {
            let why = match mac {
                [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => "it is for all: u_mcast_dlid",
                _ => "it is a group's: u_mcast_dlid",
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
            let why = "no table has it; it is locally administered, and its last three bytes are a member's LID";
            return (lid, why.into());
        }
        let flood = "ports that learn send it to all until they have seen it, others drop it";
        let first = (0..16).find(|slot| target.def_port_mask & 1 << slot != 0);
        match (lid, first) {
            (Some(lid), _) => (
                Lid::NONE,
                format!(
                    "no table has it; it is locally administered, and no member has the LID {lid} of its \
                     last three bytes; {flood}"
                ),
            ),
            (None, Some(slot)) => {
                let many = target.def_port_mask.count_ones();
                let which = match many {
                    1 => "it goes to the default port".into(),
                    many => format!("it goes to one of {many} default ports, by its flow, for one"),
                };
                let why = format!("no table has it; {which} of slot {slot}");
                (target.default_lids[slot], why)
            }
            (None, None) => (
                Lid::NONE,
                format!("no table has it, and there is no default port; {flood}"),
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
