//! IfaceUcastMacs and IfaceMcastMacs: pages of an interface's address lists.

use proto::Mac;

use super::bytes::Reader;
use super::{Attribute, DATA_MAX, Malformed, two_bytes};

/// Bytes before the addresses.
const HEAD: usize = 8;
/// Maximum number of addresses in a page.
pub const MAC_LIST_PAGE: usize = (DATA_MAX - HEAD) / size_of::<Mac>();

const _: () = assert!(MAC_LIST_PAGE == 333);

/// Answer to IfaceUcastMacs (0x0013) and IfaceMcastMacs (0x0014) (kernel opa_vnic_encap.h, `struct
/// opa_veswport_iface_macs`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MacList {
    /// Index of this page's first address in the list.
    pub start: u16,
    /// Number of addresses in the list.
    pub total: u16,
    /// Number of changes of the list. Pages with equal numbers are from the same list.
    pub gen_count: u16,
    /// Addresses of this page, up to [`MAC_LIST_PAGE`].
    pub macs: Vec<Mac>,
}

/// Query of IfaceUcastMacs and IfaceMcastMacs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MacListQuery {
    /// Index of the first address.
    pub start: u16,
    /// Number of addresses; 0: as many as fit. Larger numbers mean the same as 0.
    pub count: u16,
}

impl MacListQuery {
    /// Number of addresses to answer.
    #[must_use]
    pub fn wanted(&self) -> usize {
        match self.count {
            0 => MAC_LIST_PAGE,
            count => usize::from(count).min(MAC_LIST_PAGE),
        }
    }
}

impl Attribute for MacList {
    fn decode(data: &[u8]) -> Result<MacList, Malformed> {
        let mut r = Reader::new(data, HEAD)?;
        let start = r.u16()?;
        let count = r.u16()?;
        let total = r.u16()?;
        let gen_count = r.u16()?;
        let mut r = Reader::new(&data[HEAD..], usize::from(count) * size_of::<Mac>())?;
        let macs = (0..count).map(|_| r.mac()).collect::<Result<_, _>>()?;
        Ok(MacList {
            start,
            total,
            gen_count,
            macs,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let macs = &self.macs[..self.macs.len().min(MAC_LIST_PAGE)];
        out.extend(self.start.to_be_bytes());
        out.extend(two_bytes(macs.len()));
        out.extend(self.total.to_be_bytes());
        out.extend(self.gen_count.to_be_bytes());
        out.extend(macs.as_flattened());
    }
}

impl Attribute for MacListQuery {
    fn decode(data: &[u8]) -> Result<MacListQuery, Malformed> {
        let mut r = Reader::new(data, 4)?;
        Ok(MacListQuery {
            start: r.u16()?,
            count: r.u16()?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.start.to_be_bytes());
        out.extend(self.count.to_be_bytes());
        out.extend([0; 4]);
    }
}
