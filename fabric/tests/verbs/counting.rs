//! Counters of created and destroyed objects.

use std::collections::HashMap;

/// Objects by kind and address. Each must be created once and destroyed once.
#[derive(Debug, Default)]
pub struct Counts {
    alive: HashMap<(&'static str, usize), u32>,
    made: HashMap<&'static str, u32>,
    /// Objects destroyed that did not exist, and destructions that the library refused.
    pub wrong: Vec<String>,
}

impl Counts {
    pub fn made(&mut self, kind: &'static str, address: usize) {
        *self.made.entry(kind).or_default() += 1;
        *self.alive.entry((kind, address)).or_default() += 1;
    }

    pub fn ended(&mut self, kind: &'static str, address: usize) {
        if self.alive.remove(&(kind, address)).is_none() {
            self.wrong.push(format!(
                "{kind} {address:#x} destroyed, but it does not exist"
            ));
        }
    }

    /// Number of objects of a kind that were created.
    pub fn of(&self, kind: &str) -> u32 {
        self.made.get(kind).copied().unwrap_or(0)
    }

    /// The kinds of the existing objects.
    pub fn left(&self) -> Vec<&'static str> {
        self.alive.keys().map(|(kind, _)| *kind).collect()
    }
}

/// The kind of object that a function creates or destroys, and whether it creates.
pub fn life_of(function: &str) -> Option<(&'static str, bool)> {
    Some(match function {
        "ibv_get_device_list" => ("device list", true),
        "ibv_free_device_list" => ("device list", false),
        "ibv_open_device" => ("context", true),
        "ibv_close_device" => ("context", false),
        "ibv_alloc_pd" => ("protection domain", true),
        "ibv_dealloc_pd" => ("protection domain", false),
        "ibv_reg_mr" => ("memory region", true),
        "ibv_dereg_mr" => ("memory region", false),
        "ibv_create_comp_channel" => ("completion channel", true),
        "ibv_destroy_comp_channel" => ("completion channel", false),
        "ibv_create_cq" => ("completion queue", true),
        "ibv_destroy_cq" => ("completion queue", false),
        "ibv_create_srq" => ("shared receive queue", true),
        "ibv_destroy_srq" => ("shared receive queue", false),
        "ibv_create_qp" => ("queue pair", true),
        "ibv_destroy_qp" => ("queue pair", false),
        "ibv_create_ah" => ("address handle", true),
        "ibv_destroy_ah" => ("address handle", false),
        "rdma_create_event_channel" => ("event channel", true),
        "rdma_destroy_event_channel" => ("event channel", false),
        // Identifiers come from rdma_create_id's argument and from events; the shim records them.
        "rdma_destroy_id" => ("identifier", false),
        _ => return None,
    })
}
