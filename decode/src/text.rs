//! The text line of a packet.

use std::fmt;

use super::record::{Content, Headers, Icrc, MadRecord, Record, Roce, Value, Verdict};
use super::vnic::{Fragment, Raw, Vnic};

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        if let Some(s) = &self.segment {
            write!(f, ".{}/{}", s.index + 1, s.count)?;
        }
        write!(f, " {:.6} ", self.time)?;
        if let Some(e) = &self.ethernet {
            for vlan in &e.vlans {
                write!(f, "vlan {vlan} ")?;
            }
        }
        match &self.content {
            Content::Roce(roce) => roce.fmt(f),
            Content::Raw(raw) => raw.fmt(f),
            Content::Other { summary } => f.write_str(summary),
        }
    }
}

impl fmt::Display for Roce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.source, self.destination)?;
        if let Some(h) = &self.headers {
            write!(f, " {h}")?;
        }
        if let Some(fragment) = self.fragment.as_ref().filter(|f| !f.is_whole()) {
            write!(f, " | {fragment}")?;
        }
        if let Some(counter) = self.fragment.as_ref().and_then(|f| f.counter) {
            write!(f, " | MAC with counter {counter}")?;
        }
        if let Some(mad) = &self.mad {
            write!(f, " | {mad}")?;
        }
        if let Some(ipoib) = &self.ipoib {
            write!(f, " | IPoIB {}", ipoib.summary)?;
        }
        if let Some(vnic) = &self.vnic {
            write!(f, " | {vnic}")?;
        }
        if let Some(why) = &self.malformed {
            write!(f, " | malformed: {why}")?;
        }
        write!(f, " | {}", self.icrc)
    }
}

impl fmt::Display for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, whole) = (self.message, self.message_length);
        let (from, to) = (self.offset, self.offset + self.length);
        write!(
            f,
            "bytes {from} to {to} of {whole} of message {message:#010x}"
        )
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.vnic {
            Some(vnic) => vnic.fmt(f)?,
            None => write!(f, "16B, {} bytes", self.length)?,
        }
        if let Some(why) = &self.malformed {
            write!(f, " | malformed: {why}")?;
        }
        write!(f, " | {}", self.icrc)
    }
}

impl fmt::Display for Vnic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = &self.header;
        write!(f, "16B slid {} dlid {} length {}", h.slid, h.dlid, h.length)?;
        let bits = [(h.becn, "BECN"), (h.fecn, "FECN")];
        for (_, name) in bits.iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        let lt = u8::from(h.lt);
        write!(
            f,
            " sc {} rc {} l2 {} lt {lt} l4 {:#04x}",
            h.sc, h.rc, h.l2, h.l4
        )?;
        write!(
            f,
            " pkey {} entropy {:#06x} vesw {}",
            h.pkey, h.entropy, h.vesw
        )?;
        if let Some(tail) = &self.tail {
            write!(f, " pad {} tail {:#04x}", tail.pad, tail.byte)?;
        }
        let Some(frame) = &self.frame else {
            return Ok(());
        };
        write!(f, " len {} |", frame.length)?;
        if let Some(e) = &frame.ethernet {
            write!(f, " {} > {}", e.source, e.destination)?;
            for vlan in &e.vlans {
                write!(f, " vlan {vlan}")?;
            }
        }
        write!(f, " {}", frame.summary)
    }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = &self.bth;
        write!(f, "{} pkey {}", b.name, b.pkey)?;
        if let Some(d) = &self.deth {
            write!(f, " qp {}", d.src_qp)?;
        }
        write!(f, " > qp {} psn {:#08x}", b.dest_qp, b.psn)?;
        let bits = [
            (b.solicited, "SE"),
            (b.mig_req, "M"),
            (b.fecn, "FECN"),
            (b.becn, "BECN"),
            (b.ack_req, "A"),
        ];
        for (_, name) in bits.iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        self.extended(f)?;
        write!(f, " len {}", self.payload_length)
    }
}

impl Headers {
    fn extended(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(d) = &self.deth {
            write!(f, " qkey {}", d.qkey)?;
        }
        if let Some(r) = &self.reth {
            let (va, rkey, len) = (r.va, r.rkey, r.dma_length);
            write!(f, " va {va:#x} rkey {rkey:#010x} dma {len}")?;
        }
        if let Some(a) = &self.atomic_eth {
            write!(f, " va {:#x} rkey {:#010x}", a.va, a.rkey)?;
            write!(f, " swap/add {:#x} compare {:#x}", a.swap_add, a.compare)?;
        }
        if let Some(a) = &self.aeth {
            write!(f, " {} msn {}", a.meaning, a.msn)?;
        }
        if let Some(original) = self.atomic_ack_eth {
            write!(f, " original {original:#x}")?;
        }
        if let Some(imm) = self.imm_dt {
            write!(f, " imm {imm:#010x}")?;
        }
        if let Some(rkey) = self.ieth {
            write!(f, " invalidate {rkey:#010x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for MadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tid {:#x}", self.summary, self.transaction_id)?;
        for (name, value) in &self.fields {
            match value {
                Value::Number(n) => write!(f, " {name} {n:#x}")?,
                Value::Count(n) => write!(f, " {name} {n}")?,
                Value::Time(code) => write!(f, " {name} {code} ({})", time(*code))?,
                Value::Text(t) => write!(f, " {name} {t}")?,
                Value::List(items) => write!(f, " {name} {}", items.join(","))?,
            }
        }
        Ok(())
    }
}

/// The time of a code, with a suitable unit.
fn time(code: u8) -> String {
    let microseconds = 4.096 * 2f64.powi(code.into());
    match microseconds {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

impl fmt::Display for Icrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.verdict {
            Verdict::Good => "icrc good",
            Verdict::Bad => "icrc bad",
            Verdict::Unknown => "icrc unknown",
        })?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}
