//! Ethernet over the fabric, as Omni-Path's VNIC has it: whole Ethernet frames in 16B packets, over
//! virtual Ethernet switches (VESW) that an Ethernet Manager (EM) runs.
//!
//! Everything here is without input and output: bytes, time and events come in, bytes and events go out.
//! The packet format and the attributes of the management are those of the kernel's `opa_vnic`
//! (`drivers/infiniband/ulp/opa_vnic`, `Documentation/infiniband/opa_vnic.rst` of Linux 6.1). How packets
//! and management travel on other fabrics than Omni-Path is ours ([`carriage`]).
#![forbid(unsafe_code)]

pub mod agent;
pub mod attribute;
pub mod carriage;
pub mod counters;
pub mod directory;
mod generated_mac;
pub mod mac_table;
pub mod mad;
pub mod packet;
pub mod port;

pub use agent::random::Random;
pub use generated_mac::generated_mac;
pub use proto::{Mac, OpaLid as Lid, Time};
