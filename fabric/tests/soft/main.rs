//! The soft port on real sockets: pairs of ports in network namespaces of their own.

mod connections;
mod events;
mod exchange;
mod groups;
mod net;
mod node;
mod pressure;
mod refusals;
