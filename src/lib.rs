//! The daemon `ibtapd` as a library: configuration, life cycle of ports and devices, data threads,
//! and the control socket. It wires `netdev`, `fabric` and `ipoib` together and owns no protocol.
//!
//! `ibtap`, the tool, and `ibtap-fs`, the file tree, use [`api`] and [`control`] to talk to it.

#![forbid(unsafe_code)]

pub mod api;
pub mod args;
mod behind;
pub mod config;
pub mod control;
pub mod daemon;
pub mod datapath;
pub mod debugfs;
pub mod device;
pub mod fdstore;
pub mod logging;
mod news;
mod pinger;
pub mod port;
pub mod reload;
pub mod run;
mod starting;
mod status;
pub mod table;
pub mod vnic;
mod watch;
