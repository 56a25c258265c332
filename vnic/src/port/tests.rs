//! Tests of whole ports.

mod counting;
mod crowd;
mod floods;
mod learning;
mod receive;
mod replicas;
mod transmit;
mod world;
