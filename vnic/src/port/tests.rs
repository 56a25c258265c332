//! Tests of whole ports.

mod counting;
mod crowd;
mod learning;
mod receive;
mod replicas;
mod transmit;
mod world;
