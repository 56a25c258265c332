//! The control side of an endpoint, and its queue pairs, each used by the control thread and one worker.
//!
//! An endpoint has a queue pair for each worker. The first one is in the endpoint's address and in its
//! groups, so the first worker receives; the others send. The control thread creates and starts a queue
//! pair. After that only its worker changes its state, because only the worker knows the posted work. The
//! control thread requests a restart by incrementing a number of starts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proto::{EndpointId, PKey, Psn, QKey, Qpn};

use super::device::{Device, Opened};
use super::ibv::{Emptied, QueuePair, QueuePairInit, QueuePairKind, QueuePairState, StateChange};
use super::snapshot::Endpoint;
use crate::pkeys::{Entry, PKeyTable};

/// The queue pair of an endpoint and a worker.
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
    /// The queue pair of each worker; empty while the device is away.
    pub pairs: Vec<Arc<UdPair>>,
    /// The advertised number: of the current or last queue pair of the first worker.
    pub qpn: Qpn,
    /// P_Key table entry in use; `None` while the endpoint waits for one.
    pub entry: Option<Entry>,
    /// Number of requested starts of each queue pair.
    pub starts: u32,
}

impl UdEndpointState {
    /// Creates an endpoint without queue pairs.
    pub fn new(id: EndpointId, partition: PKey, qkey: QKey) -> UdEndpointState {
        UdEndpointState {
            id,
            partition,
            qkey,
            pairs: Vec::new(),
            qpn: Qpn::new(0),
            entry: None,
            starts: 0,
        }
    }

    /// Creates the queue pairs of the endpoint on a device.
    ///
    /// # Errors
    /// Errors of ibv_create_qp(3) and ibv_modify_qp(3).
    pub fn make(&mut self, device: &Opened, port: u8, pkeys: &PKeyTable) -> io::Result<()> {
        let pairs = device.workers().map(|device| UdPair::new(device, port));
        let pairs = pairs.collect::<io::Result<Vec<UdPair>>>()?;
        self.entry = pkeys.find(self.partition);
        self.starts = self.starts.wrapping_add(1);
        let pkey = self.entry.map(|e| e.index);
        for pair in &pairs {
            pair.start(self.starts, pkey, self.qkey)?;
        }
        if let Some(first) = pairs.first() {
            self.qpn = first.qp.qpn();
        }
        self.pairs = pairs.into_iter().map(Arc::new).collect();
        Ok(())
    }

    /// Updates the entry from the P_Key table; true if it changed and the queue pairs have to restart.
    pub fn follow(&mut self, pkeys: &PKeyTable) -> bool {
        let entry = pkeys.find(self.partition);
        if entry == self.entry {
            return false;
        }
        self.entry = entry;
        self.restart();
        true
    }

    /// Requests a restart of the queue pairs.
    pub fn restart(&mut self) {
        self.starts = self.starts.wrapping_add(1);
    }

    /// Whether a queue pair has failed without an event. `rdma_rxe` changes a queue pair to ERR when
    /// a send has no route, e.g. while its interface goes down, and completes no posted work
    /// (rxe_req.c, `rxe_requester`): the worker would wait forever.
    ///
    /// # Errors
    /// Errors of ibv_query_qp(3).
    pub fn has_failed(&self) -> io::Result<bool> {
        for pair in &self.pairs {
            if self.entry.is_none() || pair.is_behind(self.starts) {
                continue;
            }
            if let QueuePairState::Err | QueuePairState::Sqe = pair.qp.state()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The endpoint for each worker; none without queue pairs.
    pub fn seen(&self) -> impl Iterator<Item = Endpoint> {
        let qpns: Arc<[Qpn]> = self.pairs.iter().map(|pair| pair.qp.qpn()).collect();
        self.pairs.iter().map(move |pair| Endpoint {
            id: self.id,
            pair: Arc::clone(pair),
            qpns: Arc::clone(&qpns),
            pkey: self.entry.map(|e| (e.pkey, e.index)),
            qkey: self.qkey,
            starts: self.starts,
        })
    }
}
