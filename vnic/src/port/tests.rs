//! Tests of whole ports.

mod counting;
mod crowd;
mod floods;
mod learning;
mod receive;
mod replicas;
mod restarts;
mod transmit;
mod world;
