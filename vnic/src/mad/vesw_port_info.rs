//! Layout of VeswPortInfo: 152 bytes for the switch (kernel opa_vnic_encap.h, `struct opa_vesw_info`), 128
//! for the port (`struct opa_per_veswport_info`).

use proto::PKey;

use super::bytes::Reader;
use super::{Attribute, Malformed};
use crate::attribute::{ConfigState, Reserved, ServiceClasses, VeswPortInfo};

/// Bytes of the attribute.
const LEN: usize = 280;

/// Lengths of the runs of reserved bytes, in order.
const RESERVED: [usize; 9] = [6, 2, 4, 56, 2, 3, 4, 48, 8];

/// Iterates over the runs of reserved bytes.
struct Gaps {
    at: usize,
    run: usize,
}

impl Gaps {
    const fn new() -> Gaps {
        Gaps { at: 0, run: 0 }
    }

    fn next(&mut self) -> std::ops::Range<usize> {
        let len = RESERVED[self.run];
        self.run += 1;
        self.at += len;
        self.at - len..self.at
    }

    fn read(&mut self, r: &mut Reader<'_>, into: &mut Reserved) -> Result<(), Malformed> {
        for byte in &mut into.0[self.next()] {
            *byte = r.u8()?;
        }
        Ok(())
    }

    fn write(&mut self, from: &Reserved, out: &mut Vec<u8>) {
        out.extend_from_slice(&from.0[self.next()]);
    }
}

impl Attribute for VeswPortInfo {
    fn decode(data: &[u8]) -> Result<VeswPortInfo, Malformed> {
        let mut r = Reader::new(data, LEN)?;
        let mut info = VeswPortInfo::default();
        let mut gaps = Gaps::new();
        decode_switch(&mut r, &mut gaps, &mut info)?;
        decode_port(&mut r, &mut gaps, &mut info)?;
        Ok(info)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut gaps = Gaps::new();
        encode_switch(self, &mut gaps, out);
        encode_port(self, &mut gaps, out);
    }
}

fn decode_switch(
    r: &mut Reader<'_>,
    gaps: &mut Gaps,
    info: &mut VeswPortInfo,
) -> Result<(), Malformed> {
    info.fabric_id = r.u16()?;
    info.vesw_id = r.u16()?;
    gaps.read(r, &mut info.reserved)?;
    info.def_port_mask = r.u16()?;
    gaps.read(r, &mut info.reserved)?;
    info.pkey = PKey::new(r.u16()?);
    gaps.read(r, &mut info.reserved)?;
    info.u_mcast_dlid = r.lid("u_mcast_dlid")?;
    for lid in &mut info.u_ucast_dlid {
        *lid = r.lid("u_ucast_dlid")?;
    }
    info.rc = r.u32()?;
    gaps.read(r, &mut info.reserved)?;
    info.eth_mtu = r.u16()?;
    gaps.read(r, &mut info.reserved)
}

fn decode_port(
    r: &mut Reader<'_>,
    gaps: &mut Gaps,
    info: &mut VeswPortInfo,
) -> Result<(), Malformed> {
    info.port_num = r.u32()?;
    info.eth_link_status = r.u8()?;
    gaps.read(r, &mut info.reserved)?;
    info.base_mac_addr = r.mac()?;
    info.config_state = ConfigState::from_code(r.u8()?);
    info.oper_state = ConfigState::from_code(r.u8()?);
    info.max_mac_tbl_ent = r.u16()?;
    info.max_smac_ent = r.u16()?;
    info.mac_tbl_digest = r.u32()?;
    gaps.read(r, &mut info.reserved)?;
    info.encap_slid = r.lid("encap_slid")?;
    info.classes = decode_classes(r)?;
    gaps.read(r, &mut info.reserved)?;
    info.uc_macs_gen_count = r.u16()?;
    info.mc_macs_gen_count = r.u16()?;
    gaps.read(r, &mut info.reserved)
}

fn decode_classes(r: &mut Reader<'_>) -> Result<ServiceClasses, Malformed> {
    Ok(ServiceClasses {
        pcp_unicast: r.array()?,
        pcp_unicast_vl: r.array()?,
        pcp_multicast: r.array()?,
        pcp_multicast_vl: r.array()?,
        unicast: r.u8()?,
        unicast_vl: r.u8()?,
        multicast: r.u8()?,
        multicast_vl: r.u8()?,
    })
}

fn encode_switch(info: &VeswPortInfo, gaps: &mut Gaps, out: &mut Vec<u8>) {
    out.extend(info.fabric_id.to_be_bytes());
    out.extend(info.vesw_id.to_be_bytes());
    gaps.write(&info.reserved, out);
    out.extend(info.def_port_mask.to_be_bytes());
    gaps.write(&info.reserved, out);
    out.extend(info.pkey.get().to_be_bytes());
    gaps.write(&info.reserved, out);
    out.extend(info.u_mcast_dlid.get().to_be_bytes());
    for lid in info.u_ucast_dlid {
        out.extend(lid.get().to_be_bytes());
    }
    out.extend(info.rc.to_be_bytes());
    gaps.write(&info.reserved, out);
    out.extend(info.eth_mtu.to_be_bytes());
    gaps.write(&info.reserved, out);
}

fn encode_port(info: &VeswPortInfo, gaps: &mut Gaps, out: &mut Vec<u8>) {
    out.extend(info.port_num.to_be_bytes());
    out.push(info.eth_link_status);
    gaps.write(&info.reserved, out);
    out.extend(info.base_mac_addr);
    out.push(info.config_state.code());
    out.push(info.oper_state.code());
    out.extend(info.max_mac_tbl_ent.to_be_bytes());
    out.extend(info.max_smac_ent.to_be_bytes());
    out.extend(info.mac_tbl_digest.to_be_bytes());
    gaps.write(&info.reserved, out);
    out.extend(info.encap_slid.get().to_be_bytes());
    encode_classes(&info.classes, out);
    gaps.write(&info.reserved, out);
    out.extend(info.uc_macs_gen_count.to_be_bytes());
    out.extend(info.mc_macs_gen_count.to_be_bytes());
    gaps.write(&info.reserved, out);
}

fn encode_classes(classes: &ServiceClasses, out: &mut Vec<u8>) {
    out.extend(classes.pcp_unicast);
    out.extend(classes.pcp_unicast_vl);
    out.extend(classes.pcp_multicast);
    out.extend(classes.pcp_multicast_vl);
    out.extend([
        classes.unicast,
        classes.unicast_vl,
        classes.multicast,
        classes.multicast_vl,
    ]);
}
