//! Tests of the soft port: workers, lists of peers, bad packets, underlay.

mod connections;
mod events;
mod exchange;
mod groups;
mod partitioned_connections;
mod partitions;
mod pressure;
mod programs;
mod refusals;
mod scale;
mod successor;
mod traffic_class;
