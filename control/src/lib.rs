//! Shared by `ibtapd` and its clients: the control socket and its messages ([`api`]), the configuration
//! ([`config`]), output ([`output`]), exit codes ([`exit`]) and the log ([`logging`]).
//!
//! The protocol of the control socket is varlink (<https://varlink.org>). systemd's `varlinkctl` is a client.
//!
//! A message is one JSON object and a NUL byte on a Unix stream socket. A call has a `method` and `parameters`;
//! a reply has `parameters`, and `error` after a failure. `oneway` calls have no reply; `upgrade` is refused. A
//! call with `more` of a method with a stream gets replies with `continues` until the last reply; any other call
//! gets one reply.
//!
//! [`ControlServer`] has no thread and never blocks: its epoll descriptor is part of the daemon's control loop.
//! The memory of each client is bounded. A client that breaks the protocol gets an error or is disconnected. No
//! client delays others. [`ControlClient`] blocks, with a time limit.

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
pub mod metrics;
pub mod output;
mod server;
mod service;
pub mod signals;
pub mod version;

pub use client::{ClientError, ControlClient, Next, Posts, Replies};
pub use listener::{BindError, directory_of};
pub use server::{CLIENTS_MAX, ControlServer};
pub use service::{
    Answered, Body, Caller, Failure, Handler, Identity, MethodCall, Program, REPLY_MAX,
    REQUEST_MAX, StreamId, Streamed, parameters,
};

/// Default path of the control socket.
pub const DEFAULT_SOCKET: &str = "/run/ibtap/ibtapd.sock";
