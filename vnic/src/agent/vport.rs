//! What an agent keeps of a virtual port.

use std::sync::Arc;

use proto::{Mac, Qpn};

use super::NewPort;
use super::directory::Pages;
use super::mac_list::Macs;
use super::trap::{Kinds, Limiter};
use crate::attribute::VeswPortInfo;
use crate::mac_table::MacTable;

/// The link of an interface that exists and does not forward (`OPA_VNIC_ETH_LINK_DOWN`).
pub const LINK_DOWN: u8 = 2;
/// That of one that does (`OPA_VNIC_ETH_LINK_UP`).
pub const LINK_UP: u8 = 1;

pub struct Vport {
    pub name: String,
    pub qpn: Qpn,
    /// As it is answered, read-only fields included.
    pub info: VeswPortInfo,
    pub table: Arc<MacTable>,
    pub directory: Pages,
    pub admin_up: bool,
    /// The host can carry its frames.
    pub ready: bool,
    pub limiter: Limiter,
    /// Traps that were suppressed since.
    pub late: Kinds,
    /// The interface's own address, and others that it listens to, or that are behind it.
    pub mac: Mac,
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

    /// Makes the list of unicast addresses anew: all but the one that the manager has given, which it
    /// knows (kernel opa_vnic_vema_iface.c, `opa_vnic_query_ucast_macs`). Gives whether it is another one.
    pub fn list_unicast(&mut self) -> bool {
        let all = self.others.iter().copied().chain([self.mac]);
        let base = self.info.base_mac_addr;
        let told = all.filter(|mac| *mac != base && *mac != [0; 6]).collect();
        let changed = self.unicast.replace(told);
        self.info.uc_macs_gen_count = self.unicast.gen_count();
        changed
    }

    /// The list of multicast addresses is this. Gives whether it is another one.
    pub fn list_multicast(&mut self, macs: Vec<Mac>) -> bool {
        let changed = self.multicast.replace(macs);
        self.info.mc_macs_gen_count = self.multicast.gen_count();
        changed
    }

    /// With what a manager may write of `new`. Everything else stays.
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

    /// As it was before a manager spoke, but that its interface is there.
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
