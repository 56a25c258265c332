//! Whole-system tests: real daemons in network namespaces, driven by administrators' programs. They need
//! root; without it each prints that and passes.
//!
//! All names contain the process id, so that concurrent runs do not collide. Namespaces and folders are removed, also
//! when a test panics or this process is killed.

mod lab;

mod administrator;
mod allow;
mod bad_input;
mod bond;
mod bridge;
mod bugreport;
mod capture;
mod chaos;
mod checklist;
mod children;
mod config;
mod configured;
mod connected;
mod containers;
mod control;
mod dhcp;
mod doctor;
mod echo;
mod files;
mod hostile;
mod iperf;
mod ipv4_underlay;
mod kernel_peer;
mod local_users;
mod macvlan;
mod managers;
mod metrics;
mod mode;
mod monitor;
mod multicast;
mod namespaces;
mod neighbours;
mod netns_lab;
mod offloads;
mod pages;
mod peer;
mod ping;
mod privileges;
mod recorded;
mod reload;
mod restart;
mod siblings;
mod snooping;
mod subnet;
mod subnet_lab;
mod takeover;
mod top;
mod underlay;
mod virtual_machines;
mod vlan;
mod vnic;
