//! Parts shared by tests of several rooms. A dev-dependency only: no program uses this crate.

#![deny(unsafe_code)]

pub mod allocator;
pub mod pages;
mod skip;

pub use skip::{helper_thread, is_root, skip};

/// Options of tshark for captures with any payload. The kernel gives a client a port of this range, and tshark has
/// protocols for some of them: for it, the bytes at port 57000 are malformed IRC. The other protocols are those that tshark
/// guesses from the payload of an InfiniBand packet: the middle of a message can look like them.
pub fn tshark_any_payload() -> impl Iterator<Item = &'static str> {
    let ports = ["-d", "tcp.port==32768-60999,data"];
    let guessed = [
        "smc",
        "smb_direct",
        "rpcordma",
        "nvme-rdma",
        "lnet",
        "iser",
        "infiniband.eoib",
        "infiniband_sdp",
        "fcoib",
    ];
    let guessed = guessed.into_iter();
    let disabled = guessed.flat_map(|protocol| ["--disable-protocol", protocol]);
    ports.into_iter().chain(disabled)
}
