//! Checks of a manager's settings. The kernel's driver accepts all values; the agent refuses values that
//! cannot work, and names the field.

use std::fmt;

use super::MTU_MIN;
use crate::attribute::{ConfigState, VeswPortInfo};
use crate::{Lid, packet};

/// An invalid value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// Name of the field.
    pub field: &'static str,
    /// Value of the field.
    pub value: String,
    /// Reason.
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

/// Largest fabric id: 10 bits.
const FABRIC_ID_MAX: u16 = 0x3ff;
/// Largest switch number: 12 bits.
const VESW_ID_MAX: u16 = 0xfff;
/// Largest service class or virtual lane: 5 bits.
const CLASS_MAX: u8 = 31;
/// Service class of fabric management.
const MANAGEMENT_CLASS: u8 = 15;

/// Fails with [`Invalid`] unless `valid`.
pub(super) fn require(
    valid: bool,
    field: &'static str,
    value: impl fmt::Display,
    why: impl Into<String>,
) -> Result<(), Invalid> {
    match valid {
        true => Ok(()),
        false => Err(Invalid::new(field, value, why)),
    }
}

/// Checks a VeswPortInfo. `payload_max` is the largest packet, in bytes.
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
    let (id, vesw) = (info.fabric_id, info.vesw_id);
    require(id <= FABRIC_ID_MAX, "fabric_id", id, "must be 0 to 1023")?;
    require(vesw <= VESW_ID_MAX, "vesw_id", vesw, "must be 0 to 4095")?;
    let mtu = usize::from(info.eth_mtu);
    let largest = packet::eth_mtu(payload_max.into());
    // A port without a switch has the default of 1500 on any fabric.
    let valid = vesw == 0 || (usize::from(MTU_MIN)..=largest).contains(&mtu);
    let why = format!("must be {MTU_MIN} to {largest} on this port");
    require(valid, "eth_mtu", mtu, why)
}

fn check_lids(info: &VeswPortInfo) -> Result<(), Invalid> {
    let lid = info.u_mcast_dlid;
    let valid = lid == Lid::NONE || lid.is_multicast();
    require(valid, "u_mcast_dlid", lid, "not a multicast LID")?;
    let unicast = info.u_ucast_dlid.map(|lid| ("u_ucast_dlid", lid));
    for (field, lid) in unicast.into_iter().chain([("encap_slid", info.encap_slid)]) {
        let valid = lid == Lid::NONE || lid.is_unicast();
        require(valid, field, lid, "not a unicast LID")?;
    }
    Ok(())
}

fn check_classes(info: &VeswPortInfo) -> Result<(), Invalid> {
    let c = &info.classes;
    let service = c.pcp_unicast.iter().chain(&c.pcp_multicast);
    for class in service.chain([&c.unicast, &c.multicast]) {
        let valid = *class <= CLASS_MAX && *class != MANAGEMENT_CLASS;
        let why = "must be 0 to 31, except 15 (fabric management)";
        require(valid, "service class", class, why)?;
    }
    let lanes = c.pcp_unicast_vl.iter().chain(&c.pcp_multicast_vl);
    for lane in lanes.chain([&c.unicast_vl, &c.multicast_vl]) {
        require(*lane <= CLASS_MAX, "virtual lane", lane, "must be 0 to 31")?;
    }
    Ok(())
}

fn check_forwarding(info: &VeswPortInfo) -> Result<(), Invalid> {
    let on_switch = info.vesw_id != 0;
    require(on_switch, "vesw_id", 0, "must be 1 to 4095 to forward")?;
    let has_lid = info.encap_slid != Lid::NONE;
    require(has_lid, "encap_slid", 0, "must be a unicast LID to forward")?;
    require(info.pkey.is_valid(), "pkey", info.pkey, "not a valid P_Key")?;
    let mac = info.base_mac_addr;
    let [a, b, c, d, e, f] = mac;
    let shown = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
    let valid = mac != [0; 6] && a & 1 == 0;
    require(valid, "base_mac_addr", shown, "not a unicast address")
}
