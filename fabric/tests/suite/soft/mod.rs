//! The soft port alone: its workers, its lists of peers, what it makes of bad packets, its underlay.

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
mod traffic_class;
