//! The control side of an endpoint, and its queue pair, which two threads use.
//!
//! The control thread creates and starts the queue pair. After that only the worker changes its state,
//! because only the worker knows the posted work. The control thread requests a restart by incrementing
//! a number of starts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proto::{EndpointId, PKey, Psn, QKey, Qpn};

use super::device::Device;
use super::ibv::{Emptied, QueuePair, QueuePairInit, QueuePairKind, QueuePairState, StateChange};
use super::snapshot::Endpoint;
use crate::pkeys::{Entry, PKeyTable};

/// The queue pair of an endpoint.
#[derive(Debug)]
pub struct UdPair {
    /// The queue pair.
    pub qp: QueuePair,
    port: u8,
    /// The number of the last start that was carried out.
    started: AtomicU32,
}

impl UdPair {
    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    /// Errors of ibv_create_qp(3).
    pub fn new(device: &Device, port: u8) -> io::Result<UdPair> {
        let init = QueuePairInit {
            kind: QueuePairKind::Ud,
            send_cq: Arc::clone(&device.send_cq),
            receive_cq: Arc::clone(&device.receive_cq),
            srq: device.datagrams.clone(),
            max_send_wr: device.limits.ud_queue as u32,
            max_recv_wr: device.limits.own_datagrams as u32,
            max_inline: device.limits.inline,
        };
        let qp = QueuePair::new(&device.domain, init)?;
        Ok(UdPair {
            qp,
            port,
            started: AtomicU32::new(0),
        })
    }

    /// Whether the start with this number is still pending.
    pub fn is_behind(&self, start: u32) -> bool {
        self.started.load(Ordering::Acquire) != start
    }

    /// Changes the queue pair from RESET to RTS if it has a P_Key, and stores the number of the start.
    ///
    /// # Errors
    /// Errors of ibv_modify_qp(3).
    pub fn start(&self, number: u32, pkey: Option<u16>, qkey: QKey) -> io::Result<()> {
        if let Some(pkey_index) = pkey {
            self.qp
                .modify(&StateChange::init_ud(self.port, pkey_index, qkey))?;
            self.qp.modify(&StateChange::rtr_ud())?;
            self.qp.modify(&StateChange::rts_ud(Psn::new(0)))?;
        }
        self.started.store(number, Ordering::Release);
        Ok(())
    }

    /// Changes the queue pair to RESET; posted work is lost.
    ///
    /// # Errors
    /// Errors of ibv_modify_qp(3).
    pub fn reset(&self) -> io::Result<Emptied> {
        self.qp.reset()
    }
}

/// An endpoint, for the port.
#[derive(Debug)]
pub struct UdEndpointState {
    /// Identifier.
    pub id: EndpointId,
    /// The requested partition.
    pub partition: PKey,
    /// Q_Key.
    pub qkey: QKey,
    /// Queue pair; `None` while the device is away.
    pub pair: Option<Arc<UdPair>>,
    /// Number of the current or last queue pair.
    pub qpn: Qpn,
    /// P_Key table entry in use; `None` while the endpoint waits for one.
    pub entry: Option<Entry>,
    /// Number of requested starts.
    pub starts: u32,
}

impl UdEndpointState {
    /// Creates an endpoint without a queue pair.
    pub fn new(id: EndpointId, partition: PKey, qkey: QKey) -> UdEndpointState {
        UdEndpointState {
            id,
            partition,
            qkey,
            pair: None,
            qpn: Qpn::new(0),
            entry: None,
            starts: 0,
        }
    }

    /// Creates the queue pair of the endpoint on a device.
    ///
    /// # Errors
    /// Errors of ibv_create_qp(3) and ibv_modify_qp(3).
    pub fn make(&mut self, device: &Device, port: u8, pkeys: &PKeyTable) -> io::Result<()> {
        let pair = UdPair::new(device, port)?;
        self.entry = pkeys.find(self.partition);
        self.starts = self.starts.wrapping_add(1);
        pair.start(self.starts, self.entry.map(|e| e.index), self.qkey)?;
        self.qpn = pair.qp.qpn();
        self.pair = Some(Arc::new(pair));
        Ok(())
    }

    /// Updates the entry from the P_Key table; true if it changed and the queue pair has to restart.
    pub fn follow(&mut self, pkeys: &PKeyTable) -> bool {
        let entry = pkeys.find(self.partition);
        if entry == self.entry {
            return false;
        }
        self.entry = entry;
        self.restart();
        true
    }

    /// Requests a restart of the queue pair.
    pub fn restart(&mut self) {
        self.starts = self.starts.wrapping_add(1);
    }

    /// Whether the queue pair has failed without an event. `rdma_rxe` changes a queue pair to ERR when
    /// a send has no route, e.g. while its interface goes down, and completes no posted work
    /// (rxe_req.c, `rxe_requester`): the worker would wait forever.
    ///
    /// # Errors
    /// Errors of ibv_query_qp(3).
    pub fn has_failed(&self) -> io::Result<bool> {
        match &self.pair {
            Some(pair) if self.entry.is_some() && !pair.is_behind(self.starts) => {
                let state = pair.qp.state()?;
                Ok(matches!(state, QueuePairState::Err | QueuePairState::Sqe))
            }
            _ => Ok(false),
        }
    }

    /// The endpoint for the worker; `None` without a queue pair.
    pub fn seen(&self) -> Option<Endpoint> {
        Some(Endpoint {
            id: self.id,
            pair: Arc::clone(self.pair.as_ref()?),
            pkey: self.entry.map(|e| (e.pkey, e.index)),
            qkey: self.qkey,
            starts: self.starts,
        })
    }
}
