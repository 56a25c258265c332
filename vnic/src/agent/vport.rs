//! State of a virtual port in its agent.

use std::sync::Arc;

use proto::{Mac, Qpn, TokenBucket};

use super::NewPort;
use super::directory::Pages;
use super::mac_list::Macs;
use super::trap::{Kinds, Limiter};
use crate::attribute::VeswPortInfo;
use crate::mac_table::MacTable;

/// Link status of an interface that does not forward (`OPA_VNIC_ETH_LINK_DOWN`).
pub const LINK_DOWN: u8 = 2;
/// Link status of an interface that forwards (`OPA_VNIC_ETH_LINK_UP`).
pub const LINK_UP: u8 = 1;

pub struct Vport {
    pub name: String,
    pub qpn: Qpn,
    /// VeswPortInfo as answered, with read-only fields.
    pub info: VeswPortInfo,
    pub table: Arc<MacTable>,
    pub directory: Pages,
    pub admin_up: bool,
    /// The host can carry the interface's frames.
    pub ready: bool,
    /// Limit of changes of its settings.
    pub changes: TokenBucket,
    pub limiter: Limiter,
    /// Suppressed traps that must follow.
    pub late: Kinds,
    /// Address of the interface.
    pub mac: Mac,
    /// Other unicast addresses that the interface listens to, or that are behind it.
    pub others: Vec<Mac>,
    pub unicast: Macs,
    pub multicast: Macs,
}

impl Vport {
    pub fn new(port: NewPort) -> Vport {
        let mut vport = Vport {
            name: port.name,
            qpn: port.qpn,
            info: unset(),
            table: Arc::default(),
            directory: Pages::default(),
            admin_up: false,
            ready: true,
            changes: TokenBucket::default(),
            limiter: Limiter::default(),
            late: Kinds::default(),
            mac: port.mac,
            others: Vec::new(),
            unicast: Macs::default(),
            multicast: Macs::default(),
        };
        vport.list_unicast();
        vport
    }

    /// Rebuilds the list of unicast addresses: all except the address that the manager assigned (kernel
    /// opa_vnic_vema_iface.c, `opa_vnic_query_ucast_macs`). Returns whether the list changed.
    pub fn list_unicast(&mut self) -> bool {
        let all = self.others.iter().copied().chain([self.mac]);
        let base = self.info.base_mac_addr;
        let listed = all.filter(|mac| *mac != base && *mac != [0; 6]).collect();
        let changed = self.unicast.replace(listed);
        self.info.uc_macs_gen_count = self.unicast.gen_count();
        changed
    }

    /// Replaces the list of multicast addresses. Returns whether the list changed.
    pub fn list_multicast(&mut self, macs: Vec<Mac>) -> bool {
        let changed = self.multicast.replace(macs);
        self.info.mc_macs_gen_count = self.multicast.gen_count();
        changed
    }

    /// Returns `new` with this port's read-only fields.
    pub fn written(&self, new: VeswPortInfo) -> VeswPortInfo {
        let old = &self.info;
        VeswPortInfo {
            eth_link_status: old.eth_link_status,
            oper_state: old.oper_state,
            max_mac_tbl_ent: old.max_mac_tbl_ent,
            max_smac_ent: old.max_smac_ent,
            mac_tbl_digest: old.mac_tbl_digest,
            uc_macs_gen_count: old.uc_macs_gen_count,
            mc_macs_gen_count: old.mc_macs_gen_count,
            ..new
        }
    }

    /// Whether the port has the state before the first Set.
    pub fn is_unset(&self) -> bool {
        self.info == self.written(unset())
            && *self.table == MacTable::default()
            && self.directory.is_empty()
    }

    /// Restores the state before the first Set. The interface stays.
    pub fn reset(&mut self) {
        self.info = self.written(unset());
        self.info.mac_tbl_digest = 0;
        self.table = Arc::default();
        self.directory = Pages::default();
        self.list_unicast();
    }
}

fn unset() -> VeswPortInfo {
    VeswPortInfo {
        eth_link_status: LINK_DOWN,
        ..VeswPortInfo::default()
    }
}
