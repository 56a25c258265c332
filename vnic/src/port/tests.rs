//! Whole ports.

mod counting;
mod learning;
mod receive;
mod replicas;
mod transmit;
mod world;
