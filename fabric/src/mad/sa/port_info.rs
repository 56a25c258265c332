//! PortInfo (IBA vol. 1, 14.2.5.6) and PortInfoRecord (15.2.5.3): state and abilities of a port.

use std::time::Duration;

use proto::{IbMtu, Lid};

use super::codes::packet_lifetime;
use super::fields::{Reader, Writer};

/// EndportLID.
pub const LID: u64 = 1 << 0;
/// PortNum.
pub const PORT: u64 = 1 << 1;

/// Bits of [`PortInfo::capability_mask`].
pub mod capability {
    /// The port has a subnet manager.
    pub const IS_SM: u32 = 1 << 1;
    /// The port reports extended speeds.
    pub const HAS_EXTENDED_SPEEDS: u32 = 1 << 14;
    /// The port takes a request to register again.
    pub const HAS_CLIENT_REREGISTRATION: u32 = 1 << 25;
}

/// The fields of PortInfo that clients of the SA need. The others are not kept: `write` writes zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortInfo {
    /// The first 8 bytes of the port's GIDs.
    pub gid_prefix: u64,
    /// The port's LID.
    pub lid: u16,
    /// The LID of the subnet manager.
    pub sm_lid: u16,
    /// See [`capability`].
    pub capability_mask: u32,
    /// The number of the port that answers.
    pub local_port: u8,
    /// Width in use: 1 1x, 2 4x, 4 8x, 8 12x, 16 2x.
    pub width_active: u8,
    /// Speed in use, 4 bits: 1 2.5 Gbit/s a lane, 2 5, 4 10. See [`Self::speed_ext_active`].
    pub speed_active: u8,
    /// Extended speed in use, 4 bits: 0 none, 1 14 Gbit/s a lane, 2 25, 4 50, 8 100.
    pub speed_ext_active: u8,
    /// Logical state, 4 bits: 1 Down, 2 Initialize, 3 Armed, 4 Active.
    pub state: u8,
    /// Physical state, 4 bits: 5 LinkUp.
    pub phys_state: u8,
    /// The port answers to this power of two of LIDs, 3 bits.
    pub lmc: u8,
    /// Code of the MTU of the link in use, 4 bits.
    pub neighbor_mtu: u8,
    /// Code of the largest MTU of the port, 4 bits.
    pub mtu_cap: u8,
    /// Service level to the subnet manager, 4 bits.
    pub sm_sl: u8,
    /// The subnet manager requests that clients register again.
    pub client_reregister: bool,
    /// Code of the longest time through the subnet, 5 bits; see [`Self::subnet_timeout`].
    pub subnet_timeout_code: u8,
    /// Code of the longest time to an answer, 5 bits.
    pub resp_time_code: u8,
}

impl PortInfo {
    /// Bytes of the attribute.
    pub const LEN: usize = 64;

    /// The largest MTU of the port; `None` for a reserved code.
    pub fn mtu_cap(&self) -> Option<IbMtu> {
        IbMtu::from_code(self.mtu_cap)
    }

    /// The MTU of the link; `None` for a reserved code.
    pub fn neighbor_mtu(&self) -> Option<IbMtu> {
        IbMtu::from_code(self.neighbor_mtu)
    }

    /// The longest time of a packet through the subnet.
    pub const fn subnet_timeout(&self) -> Duration {
        packet_lifetime(self.subnet_timeout_code)
    }

    /// `Down`, `Initialize`, `Armed`, `Active`, or `unknown`.
    pub const fn state_name(&self) -> &'static str {
        match self.state {
            1 => "Down",
            2 => "Initialize",
            3 => "Armed",
            4 => "Active",
            _ => "unknown",
        }
    }

    /// Reads the attribute; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<PortInfo> {
        let mut r = Reader::new(bytes);
        let (_m_key, gid_prefix) = (r.u64()?, r.u64()?);
        let (lid, sm_lid, capability_mask, _diag) = (r.u16()?, r.u16()?, r.u32()?, r.u32()?);
        let [local_port, _, _, width_active] = r.bytes()?;
        let [states, phys, lmc, speed] = r.bytes()?;
        let [mtu_sl, _, _, _] = r.bytes()?;
        let [_, mtu_cap, _, _] = r.bytes()?;
        let _violations = r.bytes::<6>()?;
        let [_, timeout, resp_time, _] = r.bytes()?;
        let (_credit, _latency, _mask2) = (r.u16()?, r.u32()?, r.u16()?);
        let [speed_ext, _] = r.bytes()?;
        Some(PortInfo {
            gid_prefix,
            lid,
            sm_lid,
            capability_mask,
            local_port,
            width_active,
            speed_active: speed >> 4,
            speed_ext_active: speed_ext >> 4,
            state: states & 0xf,
            phys_state: phys >> 4,
            lmc: lmc & 7,
            neighbor_mtu: mtu_sl >> 4,
            mtu_cap: mtu_cap & 0xf,
            sm_sl: mtu_sl & 0xf,
            client_reregister: timeout & 0x80 != 0,
            subnet_timeout_code: timeout & 0x1f,
            resp_time_code: resp_time & 0x1f,
        })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        Writer::new()
            .u64(0)
            .u64(self.gid_prefix)
            .u16(self.lid)
            .u16(self.sm_lid)
            .u32(self.capability_mask)
            .u32(0)
            .bytes([self.local_port, 0, 0, self.width_active])
            .bytes([
                self.state & 0xf,
                self.phys_state << 4,
                self.lmc & 7,
                self.speed_active << 4,
            ])
            .bytes([self.neighbor_mtu << 4 | self.sm_sl & 0xf, 0, 0, 0])
            .bytes([0, self.mtu_cap & 0xf, 0, 0])
            .bytes([0; 6])
            .u8(0)
            .u8(u8::from(self.client_reregister) << 7 | self.subnet_timeout_code & 0x1f)
            .u8(self.resp_time_code & 0x1f)
            .bytes([0; 9])
            .u8(self.speed_ext_active << 4)
            .done()
    }
}

/// A port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortInfoRecord {
    /// The LID of the port; of a switch, the LID of its management port.
    pub lid: Lid,
    /// The number of the port.
    pub port: u8,
    /// State and abilities.
    pub info: PortInfo,
}

impl PortInfoRecord {
    /// Bytes of a record; tables pad to 72.
    pub const LEN: usize = 4 + PortInfo::LEN;

    /// Reads a record; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<PortInfoRecord> {
        let mut r = Reader::new(bytes);
        let (lid, port, _options) = (r.lid()?, r.u8()?, r.u8()?);
        let info = PortInfo::parse(&r.bytes::<{ PortInfo::LEN }>()?)?;
        Some(PortInfoRecord { lid, port, info })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        Writer::new()
            .u16(self.lid.0)
            .u8(self.port)
            .u8(0)
            .bytes(self.info.write())
            .done()
    }
}

super::record!(PortInfoRecord, super::PORT_INFO_RECORD);
