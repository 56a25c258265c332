//! Reading and writing of packed big-endian fields, one after the other.

use proto::{Gid, Guid, Lid};

/// The bytes of a record that are not read yet.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// The next `N` bytes; `None` if there are fewer.
    pub fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }

    pub fn lid(&mut self) -> Option<Lid> {
        self.u16().map(Lid)
    }

    pub fn gid(&mut self) -> Option<Gid> {
        self.bytes().map(Gid)
    }

    pub fn guid(&mut self) -> Option<Guid> {
        self.bytes().map(Guid)
    }
}

/// A record of `N` bytes in the making. Bytes after the last written field are zero; a field behind the
/// end is not written.
pub struct Writer<const N: usize> {
    record: [u8; N],
    at: usize,
}

impl<const N: usize> Writer<N> {
    pub const fn new() -> Writer<N> {
        Writer {
            record: [0; N],
            at: 0,
        }
    }

    /// Writes the next `M` bytes.
    #[must_use]
    pub fn bytes<const M: usize>(mut self, field: [u8; M]) -> Writer<N> {
        debug_assert!(self.at + M <= N, "a field is behind the end of the record");
        if let Some(place) = self.record.get_mut(self.at..self.at + M) {
            place.copy_from_slice(&field);
        }
        self.at += M;
        self
    }

    #[must_use]
    pub fn u8(self, field: u8) -> Writer<N> {
        self.bytes([field])
    }

    #[must_use]
    pub fn u16(self, field: u16) -> Writer<N> {
        self.bytes(field.to_be_bytes())
    }

    #[must_use]
    pub fn u32(self, field: u32) -> Writer<N> {
        self.bytes(field.to_be_bytes())
    }

    #[must_use]
    pub fn u64(self, field: u64) -> Writer<N> {
        self.bytes(field.to_be_bytes())
    }

    #[must_use]
    pub fn gid(self, field: Gid) -> Writer<N> {
        self.bytes(field.0)
    }

    pub const fn done(self) -> [u8; N] {
        self.record
    }
}
