//! The verbs provider over an RDMA device of this machine, of which two ports in one process are two
//! nodes. Without an RDMA device on Ethernet the tests skip themselves and say so: `rdma link add rxe0
//! type rxe netdev eth0` makes one.

mod datagrams;
mod device;
mod events;
mod node;
