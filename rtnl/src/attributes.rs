//! Attributes of messages from the kernel (include/net/netlink.h).

use netlink_packet_core::NlasIterator;

/// Bytes of an attribute's header: length and type, 16 bits each, in host order.
const HEADER_LEN: usize = 4;

/// Type (without flags) and value of each attribute in `bytes`, up to the first that does not fit.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes)
        .map_while(Result::ok)
        .filter_map(|attribute| {
            let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
            Some((kind, attribute.into_inner().get(HEADER_LEN..length)?))
        })
}

/// The first four bytes in host order.
pub(crate) fn u32_of(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

/// The first four bytes in host order, signed.
pub(crate) fn i32_of(value: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(*value.first_chunk()?))
}

/// The first two bytes in host order.
pub(crate) fn u16_of(value: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*value.first_chunk()?))
}

/// The first byte.
pub(crate) fn u8_of(value: &[u8]) -> Option<u8> {
    value.first().copied()
}

/// The text before the NUL; invalid UTF-8 is replaced.
pub(crate) fn text_of(value: &[u8]) -> String {
    let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}
