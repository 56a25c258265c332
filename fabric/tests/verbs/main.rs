//! The verbs provider over an RDMA device of this machine, of which two ports in one process are two
//! nodes; and under a library that fails and lies.
//!
//! For the latter a shim (`shim.rs`) sits between the provider and libibverbs. It fails any one call, or
//! tells what is not so, and keeps count of what was made and what was ended. Without an RDMA device on
//! Ethernet the tests skip themselves and say so: `rdma link add rxe0 type rxe netdev eth0` makes one.
//! In the environment, IBTAP_TEST_THOROUGH has more calls of each function fail, IBTAP_TEST_FUNCTION
//! only those whose names begin so, and IBTAP_TEST_LOG shows what the provider logs; with IBTAP_TEST_MAY_REMOVE the
//! device is taken away, and its interface changed, too.

mod connections;
mod counting;
mod datagrams;
mod device;
mod events;
mod exercise;
mod failing;
mod lying;
mod node;
mod reopening;
#[allow(unsafe_code)]
mod shim;
