//! What a manager may set. The kernel's driver takes everything; here a value that could not work is
//! refused, with the field's name.

use std::fmt;

use super::MTU_MIN;
use crate::attribute::{ConfigState, VeswPortInfo};
use crate::{Lid, packet};

/// A value that cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub why: String,
}

impl Invalid {
    pub(super) fn new(
        field: &'static str,
        value: impl fmt::Display,
        why: impl Into<String>,
    ) -> Invalid {
        Invalid {
            field,
            value: value.to_string(),
            why: why.into(),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, {}", self.field, self.value, self.why)
    }
}

/// 10 bits.
const FABRIC_ID_MAX: u16 = 0x3ff;
/// 12 bits.
const VESW_ID_MAX: u16 = 0xfff;
/// 5 bits, of service classes and virtual lanes.
const CLASS_MAX: u8 = 31;
/// The service class of fabric management.
const MANAGEMENT_CLASS: u8 = 15;

/// Looks at a whole VeswPortInfo. `payload_max` are the bytes that a packet may have.
pub fn check(info: &VeswPortInfo, payload_max: u16) -> Result<(), Invalid> {
    check_switch(info, payload_max)?;
    check_lids(info)?;
    check_classes(info)?;
    if info.config_state == ConfigState::Forwarding {
        check_forwarding(info)?;
    }
    Ok(())
}

fn check_switch(info: &VeswPortInfo, payload_max: u16) -> Result<(), Invalid> {
    if info.fabric_id > FABRIC_ID_MAX {
        return Err(Invalid::new(
            "fabric_id",
            info.fabric_id,
            "more than 10 bits",
        ));
    }
    if info.vesw_id > VESW_ID_MAX {
        return Err(Invalid::new("vesw_id", info.vesw_id, "more than 4095"));
    }
    // A port that is in no switch has the 1500 of one that was never set, on any fabric.
    let largest = packet::eth_mtu(payload_max.into());
    let mtu = usize::from(info.eth_mtu);
    if info.vesw_id != 0 && !(usize::from(MTU_MIN)..=largest).contains(&mtu) {
        let why = format!("not {MTU_MIN} to {largest}, which this port carries");
        return Err(Invalid::new("eth_mtu", mtu, why));
    }
    Ok(())
}

fn check_lids(info: &VeswPortInfo) -> Result<(), Invalid> {
    let to_all = info.u_mcast_dlid;
    if to_all != Lid::NONE && !to_all.is_multicast() {
        return Err(Invalid::new("u_mcast_dlid", to_all, "no multicast LID"));
    }
    for lid in info.u_ucast_dlid {
        if lid != Lid::NONE && !lid.is_unicast() {
            return Err(Invalid::new("u_ucast_dlid", lid, "no unicast LID"));
        }
    }
    if info.encap_slid != Lid::NONE && !info.encap_slid.is_unicast() {
        return Err(Invalid::new(
            "encap_slid",
            info.encap_slid,
            "no unicast LID",
        ));
    }
    Ok(())
}

fn check_classes(info: &VeswPortInfo) -> Result<(), Invalid> {
    let c = &info.classes;
    let service = c.pcp_unicast.iter().chain(&c.pcp_multicast);
    for class in service.chain([&c.unicast, &c.multicast]) {
        if *class > CLASS_MAX || *class == MANAGEMENT_CLASS {
            let why = "not 0 to 31 without the 15 of fabric management";
            return Err(Invalid::new("service class", class, why));
        }
    }
    let lanes = c.pcp_unicast_vl.iter().chain(&c.pcp_multicast_vl);
    for lane in lanes.chain([&c.unicast_vl, &c.multicast_vl]) {
        if *lane > CLASS_MAX {
            return Err(Invalid::new("virtual lane", lane, "not 0 to 31"));
        }
    }
    Ok(())
}

fn check_forwarding(info: &VeswPortInfo) -> Result<(), Invalid> {
    if info.vesw_id == 0 {
        return Err(Invalid::new("vesw_id", 0, "no switch to forward in"));
    }
    if info.encap_slid == Lid::NONE {
        return Err(Invalid::new("encap_slid", 0, "no LID to forward from"));
    }
    if !info.pkey.is_valid() {
        return Err(Invalid::new("pkey", info.pkey, "no partition"));
    }
    let mac = info.base_mac_addr;
    if mac == [0; 6] || mac[0] & 1 != 0 {
        let [a, b, c, d, e, f] = mac;
        let shown = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        return Err(Invalid::new(
            "base_mac_addr",
            shown,
            "no interface's address",
        ));
    }
    Ok(())
}
