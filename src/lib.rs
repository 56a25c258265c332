//! The daemon `ibtapd` as a library: life cycle of ports and devices, and data threads. It wires
//! `netdev`, `fabric` and `ipoib` together and owns no protocol. What it shares with its clients is in
//! `control`.

#![forbid(unsafe_code)]

pub mod daemon;
pub mod datapath;
pub mod ethernet;
pub mod fdstore;
pub mod interface;
pub mod ip;
mod monitor;
pub mod port;
pub mod reload;
pub mod run;
mod starting;
mod status;
