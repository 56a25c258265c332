//! Ethernet over the fabric in the format of Omni-Path's VNIC: Ethernet frames in 16B packets, over virtual
//! Ethernet switches (VESW) that an Ethernet Manager (EM) configures.
//!
//! The crate does no input and output: bytes, time and events come in, bytes and events go out. Packet
//! format and management attributes are those of the kernel's `opa_vnic`
//! (`drivers/infiniband/ulp/opa_vnic`, `Documentation/infiniband/opa_vnic.rst` of Linux 6.1). [`carriage`]
//! defines how packets and management travel on other fabrics than Omni-Path; that format is specific to
//! ibtap.
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
