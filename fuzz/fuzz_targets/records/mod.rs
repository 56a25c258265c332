//! Splits inputs into records.

/// The records of an input: a flag byte, a big-endian length, and that many bytes or the rest.
pub fn records(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[flags, l0, l1], rest) = data.split_first_chunk::<3>()?;
        let len = usize::from(u16::from_be_bytes([l0, l1])).min(rest.len());
        let (record, rest) = rest.split_at(len);
        data = rest;
        Some((flags, record))
    })
}
