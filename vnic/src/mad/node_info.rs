//! NodeInfo (0x0031, defined by ibtap): an agent, its fabric port and its virtual ports.
//!
//! ```text
//!  0  GUID          8    of the fabric port
//!  8  incarnation   u64
//! 16  payload_max   u16  largest UD payload in bytes
//! 18  port          u8   number of the port on its node
//! 19  count         u8   virtual ports in this page
//! 20  first         u8   lowest index that this page covers
//! 21  next          u8   index of the next virtual port after this page; 0: none
//! 22  reserved      2
//! 24  description   64   UTF-8, then zeros
//! 88  virtual ports, 20 bytes each:
//!       0  index    u8
//!       1  QPN      u24  0: none yet
//!       4  name     16   UTF-8, then zeros; the last byte is ignored
//! ```
//!
//! The modifier of Get is the lowest requested index. Pages are ranges of indexes, not of list positions,
//! so a port is not missed if others appear or disappear between two pages.

use proto::{Guid, Qpn};

use super::bytes::{Reader, padded, text};
use super::{Attribute, DATA_MAX, Malformed};
use crate::attribute::{NodeInfo, WantedPort};

/// Maximum number of bytes in a description.
pub const DESCRIPTION_MAX: usize = 64;
/// Bytes of a name, including a zero at the end (IFNAMSIZ).
const NAME: usize = 16;
/// Bytes before the virtual ports.
const HEAD: usize = 88;
/// Bytes of a virtual port.
const ENTRY: usize = 20;
/// Maximum number of virtual ports in a page.
pub const NODE_PORTS_PAGE: usize = (DATA_MAX - HEAD) / ENTRY;
/// Maximum number of virtual ports of a fabric port (kernel include/rdma/opa_vnic.h,
/// OPA_VNIC_MAX_NUM_VPORT).
pub const NODE_PORTS_MAX: usize = 255;

const _: () = assert!(NODE_PORTS_PAGE == 96);

impl Attribute for NodeInfo {
    fn decode(data: &[u8]) -> Result<NodeInfo, Malformed> {
        let mut r = Reader::new(data, HEAD)?;
        let guid = Guid(r.array()?);
        let incarnation = r.u64()?;
        let payload_max = r.u16()?;
        let port = r.u8()?;
        let count = usize::from(r.u8()?);
        let first = r.u8()?;
        let next = r.u8()?;
        r.skip::<2>()?;
        let description = text("description", &r.array::<DESCRIPTION_MAX>()?)?;
        let mut r = Reader::new(&data[HEAD..], count * ENTRY)?;
        let ports = (0..count)
            .map(|_| decode_port(&mut r))
            .collect::<Result<_, _>>()?;
        let info = NodeInfo {
            guid,
            incarnation,
            port,
            payload_max,
            description,
            first,
            next,
            ports,
        };
        // Otherwise a reader of all pages might never end.
        let within = |port: &WantedPort| info.range().contains(&port.index);
        if (next != 0 && next <= first) || !info.ports.iter().all(within) {
            return Err(Malformed::Field {
                field: "next",
                value: next.into(),
                why: "inconsistent with the indexes of the page",
            });
        }
        Ok(info)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let ports = &self.ports[..self.ports.len().min(NODE_PORTS_PAGE)];
        out.extend(self.guid.0);
        out.extend(self.incarnation.to_be_bytes());
        out.extend(self.payload_max.to_be_bytes());
        let count = u8::try_from(ports.len()).unwrap_or(u8::MAX);
        out.extend([self.port, count, self.first, self.next]);
        out.extend([0; 2]);
        out.extend(padded::<DESCRIPTION_MAX>(&self.description));
        for port in ports {
            out.push(port.index);
            out.extend(port.qpn.to_bytes());
            out.extend(padded::<{ NAME - 1 }>(&port.name));
            out.push(0);
        }
    }
}

fn decode_port(r: &mut Reader<'_>) -> Result<WantedPort, Malformed> {
    let port = WantedPort {
        index: r.u8()?,
        qpn: Qpn::from_bytes(r.array()?),
        name: text("name", &r.array::<{ NAME - 1 }>()?)?,
    };
    r.skip::<1>()?;
    Ok(port)
}
