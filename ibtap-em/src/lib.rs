//! The Ethernet Manager: finds the agents of a fabric, assigns a switch, a LID and an address to their
//! virtual ports, sends each port the addresses of the others, and keeps them configured.
//!
//! [`config`] is the administrator's configuration, [`state`] the state that survives a restart. [`engine`]
//! configures the fabric, sans-IO. [`election`] selects the active manager. [`seam`] is the interface between
//! program and engine; [`runtime`] joins both. [`transport`] connects to the fabric, [`outbox`] saves state
//! before messages leave, and [`run`] has the only thread. [`api`] has the types of the control socket.
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
