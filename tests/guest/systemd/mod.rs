//! The packages and their services on a host with systemd.

mod kernel;
mod packages;
mod service;
