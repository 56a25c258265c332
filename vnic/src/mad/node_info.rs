//! NodeInfo (0x0031, ours): an agent, its fabric port, and the virtual ports that it wants.
//!
//! ```text
//!  0  GUID          8    of the fabric port
//!  8  incarnation   u64
//! 16  payload_max   u16  bytes of the largest UD payload
//! 18  port          u8   the port's number on its node
//! 19  count         u8   virtual ports here
//! 20  first         u8   the lowest index that this tells of
//! 21  next          u8   the index of the next virtual port, not told of here; 0: there is none
//! 22  reserved      2
//! 24  description   64   UTF-8, then zeros
//! 88  virtual ports, 20 bytes each:
//!       0  index    u8
//!       1  QPN      u24  0: none yet
//!       4  name     16   UTF-8, then zeros, of which the last is not read
//! ```
//!
//! Get has the lowest index that is asked for in its modifier. A page is by indexes, not by places in a
//! list, so that what comes or goes between two pages makes nobody be left out of both.

use proto::{Guid, Qpn};

use super::bytes::{Reader, padded, text};
use super::{Attribute, DATA_MAX, Malformed};
use crate::attribute::{NodeInfo, WantedPort};

/// The most bytes of a description.
pub const DESCRIPTION_MAX: usize = 64;
/// Bytes of a name with the zero behind it (IFNAMSIZ).
const NAME: usize = 16;
/// Bytes before the virtual ports.
const HEAD: usize = 88;
/// Bytes of a virtual port.
const ENTRY: usize = 20;
/// The most virtual ports that one of these tells of.
pub const NODE_PORTS_PAGE: usize = (DATA_MAX - HEAD) / ENTRY;
/// The most virtual ports of one fabric port (kernel include/rdma/opa_vnic.h, OPA_VNIC_MAX_NUM_VPORT).
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
        // Else whoever asks on would never come to an end.
        let within = |port: &WantedPort| info.told().contains(&port.index);
        if (next != 0 && next <= first) || !info.ports.iter().all(within) {
            return Err(Malformed::Field {
                field: "next",
                value: next.into(),
                why: "not behind what is told of",
            });
        }
        Ok(info)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let ports = &self.ports[..self.ports.len().min(NODE_PORTS_PAGE)];
        out.extend(self.guid.0);
        out.extend(self.incarnation.to_be_bytes());
        out.extend(self.payload_max.to_be_bytes());
        out.extend([self.port, ports.len() as u8, self.first, self.next]);
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
