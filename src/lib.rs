//! The daemon `ibtapd` as a library: ports, interfaces, the control thread, data threads. It connects
//! `netdev`, `fabric`, `ipoib` and `vnic` and implements no protocol. `control` has the parts shared with
//! clients.

#![forbid(unsafe_code)]

pub mod daemon;
pub mod datapath;
pub mod ethernet;
mod fdstore;
pub mod interface;
pub mod interfaces;
pub mod ip;
mod monitor;
pub mod port;
pub mod reload;
pub mod run;
mod status;
