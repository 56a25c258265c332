//! Fuzz targets, one for each decoder. A target takes any bytes, and panics if the decoder breaks a promise.
//!
//! The tests of this crate are short runs without instrumentation. `scripts/fuzz` runs the targets with libFuzzer.

#![deny(unsafe_code)]

mod interface;
#[cfg(test)]
mod short;

macro_rules! targets {
    ($($name:ident)*) => {
        mod targets {
            $(pub mod $name;)*
        }

        /// Name and function of each target.
        pub const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), targets::$name::run)),*];

        #[cfg(test)]
        mod short_runs {
            $(
                #[test]
                fn $name() {
                    crate::short::run(stringify!($name), crate::targets::$name::run);
                }
            )*
        }
    };
}

targets! {
    cm cm_umad coalesce config connected control decode_pcap engine_receive icrc_l3 ipoib_from_fabric
    ipoib_from_tap mad membership rc_receive rmpp roce_packet sa_client segment services vlan vnic_agent
    vnic_fragment vnic_mad vnic_packet vnic_port
}

/// The records of an input: a flag byte, a big-endian length, and that many bytes or the rest.
fn records(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[flags, l0, l1], rest) = data.split_first_chunk::<3>()?;
        let len = usize::from(u16::from_be_bytes([l0, l1])).min(rest.len());
        let (record, rest) = rest.split_at(len);
        data = rest;
        Some((flags, record))
    })
}
