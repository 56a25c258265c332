//! Sequential reading and writing of big-endian fields.

use proto::{Gid, Mac};

use super::Malformed;
use crate::Lid;

/// Reads fields from the beginning of an attribute.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader; fails if the attribute has less than `need` bytes.
    pub fn new(data: &'a [u8], need: usize) -> Result<Reader<'a>, Malformed> {
        let have = data.len();
        if have < need {
            return Err(Malformed::Short { have, need });
        }
        Ok(Reader { rest: data })
    }

    /// Reads the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let have = self.rest.len();
        let short = Malformed::Short { have, need: N };
        let (first, rest) = self.rest.split_first_chunk().ok_or(short)?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn skip<const N: usize>(&mut self) -> Result<(), Malformed> {
        self.array::<N>().map(|_| ())
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub fn mac(&mut self) -> Result<Mac, Malformed> {
        self.array()
    }

    pub fn gid(&mut self) -> Result<Gid, Malformed> {
        self.array().map(Gid)
    }

    /// Reads a LID in 32 bits, in the form of the wire or of hosts.
    pub fn lid(&mut self, field: &'static str) -> Result<Lid, Malformed> {
        let value = self.u32()?;
        Lid::from_host(value).ok_or(Malformed::Field {
            field,
            value: value.into(),
            why: "not a 24-bit LID",
        })
    }
}

/// Encodes text in `MAX` bytes, cut at a character boundary and padded with zeros.
pub fn padded<const MAX: usize>(text: &str) -> [u8; MAX] {
    let mut end = text.len().min(MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut bytes = [0; MAX];
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

/// Decodes the text before the first zero. Control characters are refused, because text may be shown on a
/// terminal.
pub fn text(field: &'static str, bytes: &[u8]) -> Result<String, Malformed> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = str::from_utf8(&bytes[..end]).map_err(|_| Malformed::Text(field))?;
    if text.chars().any(char::is_control) {
        return Err(Malformed::Text(field));
    }
    Ok(text.to_owned())
}
