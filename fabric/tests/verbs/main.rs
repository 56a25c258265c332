//! The verbs provider over an RDMA device of this machine, with two ports in one process as two nodes;
//! and with a library that fails and lies.
//!
//! A shim (`shim.rs`) between the provider and libibverbs makes any call fail or changes its result,
//! and counts created and destroyed objects. Without an RDMA device on Ethernet the tests are skipped
//! with a message; `rdma link add rxe0 type rxe netdev eth0` creates one. Environment variables:
//! IBTAP_TEST_THOROUGH makes more calls of each function fail, IBTAP_TEST_FUNCTION only functions whose
//! names start with its value; IBTAP_TEST_LOG prints the provider's log; IBTAP_TEST_MAY_REMOVE permits
//! the test that removes the device.

mod connections;
mod counting;
mod datagrams;
mod device;
mod exercise;
mod failing;
mod lying;
mod node;
mod reopening;
#[allow(unsafe_code)]
mod shim;
