//! From the fabric to the lanes.

use std::io;

use fabric::{Batch, EndpointId, UdReceived};
use ipoib::Time;

use super::super::allowed::Allowed;
use super::super::ethernet::{self, Ethernet};
use super::super::handle::Mailbox;
use super::super::ip::IpLane;
use super::super::ip::receive::Run;
use super::super::lanes::Lanes;
use super::{DEPTH, DataThread, Scratch};

impl DataThread {
    /// Receives from the fabric.
    pub(super) fn receive(&mut self, now: Time) -> io::Result<()> {
        if self.pace.moderation.is_some() {
            return self.receive_moderated(now);
        }
        let depth = if self.pace.busy { DEPTH } else { 1 };
        self.receive_batch(now, depth).map(drop)
    }

    /// Receives one batch and writes it to the TAPs. Returns the number of packets with moderation, else 0.
    pub(super) fn receive_batch(&mut self, now: Time, depth: usize) -> io::Result<usize> {
        let batch = self.io.fabric.poll(depth)?;
        // The batch may have the answer to a frame that another thread sent. What that thread learned from
        // the frame, for example a DHCP transaction, must be known before the answer is handled.
        self.ip.apply_updates(&mut self.control.inbox, now);
        let arrived = match self.pace.moderation {
            Some(_) => batch.datagrams().count() + batch.messages().count(),
            None => 0,
        };
        let mut receiver = Receiver {
            ip: &mut self.ip.lanes,
            ethernet: &mut self.ethernet,
            scratch: &mut self.scratch,
            replicas: &self.control.replicas,
            now,
            unserved: &mut self.io.unserved,
        };
        let news = receiver.batch(&batch, &mut self.io.allowed);
        if news {
            // A packet may wait for a guest that another replica knows; the news may be in the inbox.
            self.commands(now);
            let mut n = 0;
            while let Some(i) = self.ip.lanes.used(n) {
                self.service(i, now);
                n += 1;
            }
            let mut n = 0;
            while let Some(i) = self.ethernet.lanes.used(n) {
                self.service_ethernet(i);
                n += 1;
            }
            self.ethernet.management.report(&self.control);
        }
        Ok(arrived)
    }
}

/// Writes the arrivals of one poll of the fabric to the TAPs.
pub(in crate::datapath) struct Receiver<'t> {
    pub ip: &'t mut Lanes<IpLane>,
    pub ethernet: &'t mut Ethernet,
    pub scratch: &'t mut Scratch,
    /// Other threads, which receive the news of the cores.
    pub replicas: &'t [Mailbox],
    pub now: Time,
    /// Counts arrivals for endpoints without a lane.
    pub unserved: &'t mut u64,
}

impl Receiver<'_> {
    /// Handles a batch, link by link; true if a core has learned something or has something to send.
    /// Messages come after datagrams, in the order of a peer that has just changed from datagrams to a
    /// connection. Peers of connections were checked when they asked.
    pub fn batch(&mut self, batch: &Batch<'_>, allowed: &mut Allowed) -> bool {
        let mut news = false;
        let datagrams = batch.datagrams();
        let mut datagrams = datagrams
            .filter(|(received, _)| allowed.admits(&received.src_gid))
            .peekable();
        while let Some((first, _)) = datagrams.peek() {
            let endpoint = first.endpoint;
            let arrivals =
                std::iter::from_fn(|| datagrams.next_if(|(r, _)| r.endpoint == endpoint));
            if let Some((lane, run)) = self.run(endpoint) {
                news |= run.datagrams(lane, arrivals);
            } else {
                news |= self.not_ip(endpoint, arrivals);
            }
        }
        let mut messages = batch.messages().peekable();
        while let Some((first, _)) = messages.peek() {
            let endpoint = first.endpoint;
            let arrivals = std::iter::from_fn(|| messages.next_if(|(r, _)| r.endpoint == endpoint));
            if let Some((lane, run)) = self.run(endpoint) {
                news |= run.messages(lane, arrivals);
            } else {
                *self.unserved += arrivals.count() as u64;
            }
        }
        news
    }

    /// Handles datagrams for an endpoint without an IP link.
    fn not_ip<'b>(
        &mut self,
        endpoint: EndpointId,
        datagrams: impl Iterator<Item = (&'b UdReceived, &'b [u8])>,
    ) -> bool {
        let Ethernet { lanes, management } = &mut *self.ethernet;
        if let Some(at) = lanes.of_endpoint(endpoint)
            && let Some(lane) = lanes.get_mut(at)
        {
            let coalescer = &mut self.scratch.coalescer;
            return ethernet::datagrams(lane, coalescer, self.replicas, self.now, datagrams);
        }
        if let Some(name) = management.of_endpoint(endpoint) {
            management.keep(name, datagrams);
            return true;
        }
        *self.unserved += datagrams.count() as u64;
        false
    }

    /// Begins a run of arrivals for an endpoint; `None` if the thread has no IP lane for it.
    fn run<'b>(&mut self, endpoint: EndpointId) -> Option<(&mut IpLane, Run<'_, 'b>)> {
        let at = self.ip.of_endpoint(endpoint)?;
        let lane = self.ip.get_mut(at)?;
        let run = Run::new(lane, self.scratch, self.replicas, self.now);
        Some((lane, run))
    }
}
