//! The Ethernet Manager of ibtap's virtual Ethernet switches: it finds the agents of a fabric, gives their
//! virtual ports a switch, a LID and an address, tells each of them where the others are, and keeps it so.
//!
//! [`config`] is what the administrator wants, [`state`] what must survive a restart, [`engine`] brings
//! the fabric to it, without input and output. [`election`] decides which of several managers does.
//! [`seam`] is what the program asks of the engine, [`runtime`] joins both, [`transport`] is the way to the
//! fabric, [`outbox`] has what is sent on the disk before, and [`run`] has the one thread. [`api`] is what it tells those who ask it.
#![forbid(unsafe_code)]

pub mod api;
pub mod args;
pub mod client;
pub mod config;
pub mod election;
pub mod engine;
pub mod outbox;
pub mod run;
pub mod runtime;
pub mod seam;
pub mod server;
pub mod show;
pub mod state;
pub mod transport;
