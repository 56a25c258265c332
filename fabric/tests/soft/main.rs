//! The soft port on real sockets: pairs of ports in network namespaces of their own.

mod connections;
mod events;
mod exchange;
mod groups;
mod net;
mod node;
mod partitioned_connections;
mod partitions;
mod pressure;
mod programs;
mod refusals;
mod scale;
mod traffic_class;
