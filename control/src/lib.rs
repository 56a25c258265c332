//! What `ibtapd` and its clients share: the control socket, what it carries ([`api`]), the configuration
//! ([`config`]), exit codes ([`exit`]) and the log ([`logging`]).
//!
//! The control socket is varlink (<https://varlink.org>), spoken by hand.
//!
//! A message is one JSON object and a NUL byte on a stream socket of the unix domain. A call names
//! a `method` and carries `parameters`; a reply carries `parameters`, and `error` where there was
//! one. `oneway` calls are not answered; `upgrade` is refused. A call for `more` of a method that
//! answers with a stream gets replies with `continues` until the last one, any other call for `more`
//! one reply. `varlinkctl` of systemd speaks it too.
//!
//! [`ControlServer`] has no thread of its own and never blocks: its epoll descriptor goes into the
//! daemon's control loop. Whatever a client does, it holds a bounded amount of memory, is answered
//! with an error or cut off, and keeps no other client waiting. [`ControlClient`] blocks, with a
//! time limit.

#![forbid(unsafe_code)]

pub mod aligned_text;
pub mod api;
mod client;
pub mod config;
mod connection;
pub mod debugfs_dumps;
pub mod exit;
mod listener;
pub mod logging;
mod server;
mod service;

pub use client::{ClientError, ControlClient, Next, Posts, Replies};
pub use listener::BindError;
pub use server::{CLIENTS_MAX, ControlServer};
pub use service::{
    Answered, Body, Failure, Handler, Identity, MethodCall, Program, REPLY_MAX, REQUEST_MAX,
    StreamId, Streamed,
};

/// Where the control socket is unless the user says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/ibtap/ibtapd.sock";
