//! VeswPortSummaryCounters and VeswPortErrorCounters. Both begin with the virtual port's index (16 bits),
//! the number of the switch (16 bits) and the port's number on the switch (32 bits). Counters of 64 bits
//! follow, with gaps between them.
//!
//! In the third field, the kernel's driver sends the number of the *fabric* port, which does not identify
//! the port on the switch.

use super::bytes::Reader;
use super::{Attribute, Malformed};
use crate::counters::Counters;

/// Bytes of VeswPortSummaryCounters (kernel opa_vnic_encap.h, `struct opa_veswport_summary_counters`).
const SUMMARY_LEN: usize = 360;
/// Bytes of VeswPortErrorCounters (`struct opa_veswport_error_counters`).
const ERROR_LEN: usize = 304;

/// VeswPortSummaryCounters (0x0020). Counters that the attribute does not have are not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SummaryCounters {
    /// Index of the virtual port.
    pub index: u16,
    /// Number of the switch.
    pub vesw_id: u16,
    /// Number of the port on the switch.
    pub port_num: u32,
    /// The counters.
    pub counters: Counters,
}

/// VeswPortErrorCounters (0x0022).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorCounters {
    /// Index of the virtual port.
    pub index: u16,
    /// Number of the switch.
    pub vesw_id: u16,
    /// Number of the port on the switch.
    pub port_num: u32,
    /// All transmit errors.
    pub tx_errors: u64,
    /// All receive errors.
    pub rx_errors: u64,
    /// Frames refused for their source address. Always 0: no such filter exists.
    pub tx_smac_filt: u64,
    /// Frames without a destination LID.
    pub tx_dlid_zero: u64,
    /// Frames that the fabric refused, or for which it had no room.
    pub tx_logic: u64,
    /// Frames dropped because the port was not forwarding.
    pub tx_drop_state: u64,
    /// Packets of another switch.
    pub rx_bad_veswid: u64,
    /// Frames of less than 60 bytes.
    pub rx_runt: u64,
    /// Frames larger than the MTU plus 18 bytes.
    pub rx_oversize: u64,
    /// Always 0, as in the kernel's driver.
    pub rx_eth_down: u64,
    /// Packets dropped because the port was not forwarding.
    pub rx_drop_state: u64,
    /// Frames that the TAP did not accept.
    pub rx_logic: u64,
}

/// Counters of the summary, in order.
fn summary(c: &mut Counters) -> [&mut u64; 28] {
    [
        &mut c.tx_errors,
        &mut c.rx_errors,
        &mut c.tx_packets,
        &mut c.rx_packets,
        &mut c.tx_bytes,
        &mut c.rx_bytes,
        &mut c.tx_unicast,
        &mut c.tx_mcastbcast,
        &mut c.tx_untagged,
        &mut c.tx_vlan,
        &mut c.tx_64_size,
        &mut c.tx_65_127,
        &mut c.tx_128_255,
        &mut c.tx_256_511,
        &mut c.tx_512_1023,
        &mut c.tx_1024_1518,
        &mut c.tx_1519_max,
        &mut c.rx_unicast,
        &mut c.rx_mcastbcast,
        &mut c.rx_untagged,
        &mut c.rx_vlan,
        &mut c.rx_64_size,
        &mut c.rx_65_127,
        &mut c.rx_128_255,
        &mut c.rx_256_511,
        &mut c.rx_512_1023,
        &mut c.rx_1024_1518,
        &mut c.rx_1519_max,
    ]
}

impl Attribute for SummaryCounters {
    fn decode(data: &[u8]) -> Result<SummaryCounters, Malformed> {
        let mut r = Reader::new(data, SUMMARY_LEN)?;
        let mut all = SummaryCounters {
            index: r.u16()?,
            vesw_id: r.u16()?,
            port_num: r.u32()?,
            counters: Counters::default(),
        };
        for counter in summary(&mut all.counters) {
            *counter = r.u64()?;
        }
        Ok(all)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let end = out.len() + SUMMARY_LEN;
        out.extend(self.index.to_be_bytes());
        out.extend(self.vesw_id.to_be_bytes());
        out.extend(self.port_num.to_be_bytes());
        let mut counters = self.counters;
        for counter in summary(&mut counters) {
            out.extend(counter.to_be_bytes());
        }
        out.resize(end, 0);
    }
}

impl ErrorCounters {
    /// Creates the attribute from a virtual port's counters (kernel opa_vnic_vema_iface.c,
    /// `opa_vnic_get_error_counters`).
    #[must_use]
    pub const fn of(index: u16, vesw_id: u16, port_num: u32, c: &Counters) -> ErrorCounters {
        ErrorCounters {
            index,
            vesw_id,
            port_num,
            tx_errors: c.tx_errors,
            rx_errors: c.rx_errors,
            tx_smac_filt: 0,
            tx_dlid_zero: c.tx_dlid_zero,
            tx_logic: c.tx_fifo_errors.wrapping_add(c.tx_carrier_errors),
            tx_drop_state: c.tx_drop_state,
            rx_bad_veswid: c.rx_bad_veswid,
            rx_runt: c.rx_runt,
            rx_oversize: c.rx_oversize,
            rx_eth_down: 0,
            rx_drop_state: c.rx_drop_state,
            rx_logic: c.rx_fifo_errors,
        }
    }
}

impl Attribute for ErrorCounters {
    fn decode(data: &[u8]) -> Result<ErrorCounters, Malformed> {
        let mut r = Reader::new(data, ERROR_LEN)?;
        let mut c = ErrorCounters {
            index: r.u16()?,
            vesw_id: r.u16()?,
            port_num: r.u32()?,
            tx_errors: r.u64()?,
            rx_errors: r.u64()?,
            ..ErrorCounters::default()
        };
        r.skip::<8>()?;
        c.tx_smac_filt = r.u64()?;
        r.skip::<24>()?;
        c.tx_dlid_zero = r.u64()?;
        r.skip::<8>()?;
        c.tx_logic = r.u64()?;
        r.skip::<8>()?;
        c.tx_drop_state = r.u64()?;
        c.rx_bad_veswid = r.u64()?;
        r.skip::<8>()?;
        c.rx_runt = r.u64()?;
        c.rx_oversize = r.u64()?;
        r.skip::<8>()?;
        c.rx_eth_down = r.u64()?;
        c.rx_drop_state = r.u64()?;
        c.rx_logic = r.u64()?;
        Ok(c)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let end = out.len() + ERROR_LEN;
        out.extend(self.index.to_be_bytes());
        out.extend(self.vesw_id.to_be_bytes());
        out.extend(self.port_num.to_be_bytes());
        let counters = [
            self.tx_errors,
            self.rx_errors,
            0,
            self.tx_smac_filt,
            0,
            0,
            0,
            self.tx_dlid_zero,
            0,
            self.tx_logic,
            0,
            self.tx_drop_state,
            self.rx_bad_veswid,
            0,
            self.rx_runt,
            self.rx_oversize,
            0,
            self.rx_eth_down,
            self.rx_drop_state,
            self.rx_logic,
        ];
        for counter in counters {
            out.extend(counter.to_be_bytes());
        }
        out.resize(end, 0);
    }
}
