//! The Ethernet Manager of ibtap's virtual Ethernet switches: it finds the agents of a fabric, gives their
//! virtual ports a switch, a LID and an address, tells each of them where the others are, and keeps it so.
//!
//! [`config`] is what the administrator wants, [`state`] what must survive a restart, [`engine`] brings
//! the fabric to it, without input and output.
#![forbid(unsafe_code)]

pub mod config;
pub mod engine;
pub mod state;
