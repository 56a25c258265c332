//! The control side of an endpoint, and its queue pair, which two threads use.
//!
//! The control thread makes the queue pair and starts it; from then on only the worker changes its state,
//! since it alone knows what is posted to it. What the control thread wants is a number of starts.

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
    /// The number of the start that was carried out last.
    started: AtomicU32,
}

impl UdPair {
    /// Makes one, in RESET.
    ///
    /// # Errors
    /// Those of ibv_create_qp(3).
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

    /// Whether the start with this number is still to be carried out.
    pub fn is_behind(&self, start: u32) -> bool {
        self.started.load(Ordering::Acquire) != start
    }

    /// Takes it from RESET to RTS, if it has a P_Key, and notes the number of the start.
    ///
    /// # Errors
    /// Those of ibv_modify_qp(3).
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

    /// Takes it to RESET: what was posted to it is gone.
    ///
    /// # Errors
    /// Those of ibv_modify_qp(3).
    pub fn reset(&self) -> io::Result<Emptied> {
        self.qp.reset()
    }
}

/// An endpoint as the port has it.
#[derive(Debug)]
pub struct UdEndpointState {
    /// Its name.
    pub id: EndpointId,
    /// The partition that was asked for.
    pub partition: PKey,
    /// Its Q_Key.
    pub qkey: QKey,
    /// Its queue pair; none while the device is away.
    pub pair: Option<Arc<UdPair>>,
    /// The number of its queue pair, or of the last one.
    pub qpn: Qpn,
    /// The P_Key table entry in use; none while it waits for one.
    pub entry: Option<Entry>,
    /// How often it was to be started.
    pub starts: u32,
}

impl UdEndpointState {
    /// One without a queue pair.
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

    /// Gives it a queue pair of a device.
    ///
    /// # Errors
    /// Those of ibv_create_qp(3) and ibv_modify_qp(3).
    pub fn make(&mut self, device: &Device, port: u8, pkeys: &PKeyTable) -> io::Result<()> {
        let pair = UdPair::new(device, port)?;
        self.entry = pkeys.find(self.partition);
        self.starts = self.starts.wrapping_add(1);
        pair.start(self.starts, self.entry.map(|e| e.index), self.qkey)?;
        self.qpn = pair.qp.qpn();
        self.pair = Some(Arc::new(pair));
        Ok(())
    }

    /// Follows the P_Key table; true if its entry is another one now, and its queue pair is to be
    /// restarted.
    pub fn follow(&mut self, pkeys: &PKeyTable) -> bool {
        let entry = pkeys.find(self.partition);
        if entry == self.entry {
            return false;
        }
        self.entry = entry;
        self.restart();
        true
    }

    /// Has its queue pair restarted.
    pub fn restart(&mut self) {
        self.starts = self.starts.wrapping_add(1);
    }

    /// Whether its queue pair has failed without a word. `rdma_rxe` takes one to ERR when a send finds no
    /// way, as while its interface goes down, and completes none of what was posted (rxe_req.c,
    /// `rxe_requester`): the worker would wait for ever.
    ///
    /// # Errors
    /// Those of ibv_query_qp(3).
    pub fn has_failed(&self) -> io::Result<bool> {
        match &self.pair {
            Some(pair) if self.entry.is_some() && !pair.is_behind(self.starts) => {
                let state = pair.qp.state()?;
                Ok(matches!(state, QueuePairState::Err | QueuePairState::Sqe))
            }
            _ => Ok(false),
        }
    }

    /// As the worker sees it; none while there is no queue pair.
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
