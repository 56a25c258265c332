//! The address handles of a worker. On a subnet, a handle to a group waits until the port is a member of the
//! group, at least to send; trains for the handle wait meanwhile.

use proto::AddressHandle;

use super::{Departure, Pending, Progress, Sent, SoftWorker};
use crate::handles::{self, Found};
use crate::kernel::clock;
use crate::soft::address_handle::Address;
use crate::soft::train::packet_len;

/// A train that waits for its address handle, with its packets.
#[derive(Debug)]
pub(super) struct Waiting {
    departure: Departure,
    memory: Box<[u8]>,
}

impl SoftWorker {
    /// Makes the wanted address handles, or asks the port for the paths to groups.
    pub(super) fn make_handles(&mut self) {
        for wanted in self.handles.take_wanted() {
            let attributes = &wanted.attributes;
            match &self.table.subnet {
                Some(subnet) if attributes.dgid.is_multicast() => {
                    subnet.destinations.send([self.handles.resolve(wanted)]);
                }
                _ => {
                    let address = Address::of(attributes, None);
                    self.handles.made(&wanted, Ok(address), clock(), false);
                }
            }
        }
        // Addresses need no more than their memory.
        drop(self.handles.take_ended());
    }

    /// Handles the port's answers.
    pub(super) fn take_paths(&mut self) {
        let Some(subnet) = &self.table.subnet else {
            return;
        };
        let answers = subnet.paths.get(self.index).map(|paths| paths.take());
        let answers = answers.unwrap_or_default();
        if answers.is_empty() {
            return;
        }
        for answer in &answers {
            for wanted in self.handles.answered(answer) {
                let address = match &answer.1 {
                    Ok(path) => Ok(Address::of(&wanted.attributes, Some(path))),
                    Err(why) => {
                        log::debug!("cannot send to {}: {why}", answer.0.gid);
                        Err(why.kind().into())
                    }
                };
                self.handles.made(&wanted, address, clock(), true);
            }
        }
        self.send_waiting();
        self.make_handles();
    }

    /// The address of a handle.
    pub(super) fn find(&mut self, handle: AddressHandle) -> Found<Address> {
        let found = self.handles.find(handle, clock);
        self.make_handles();
        match found {
            // Made by now, unless it needs a path.
            Found::Making => self.handles.find(handle, clock),
            found => found,
        }
    }

    /// Keeps a train until its address handle is made. The handle stays valid even if the caller destroys
    /// it.
    pub(super) fn wait(&mut self, departure: Departure) -> Sent {
        let handle = departure.to.ah;
        let waiting = self.waiting.iter().map(|w| w.departure.to.ah);
        if !handles::may_wait(waiting, handle) {
            return self.failed();
        }
        let train = &departure.train;
        let memory = &self.transmit[..packet_len(train.payload) * train.count];
        self.handles.hold(handle);
        self.waiting.push_back(Waiting {
            departure,
            memory: memory.into(),
        });
        Sent::Done
    }

    /// Sends the trains whose address handles are made.
    fn send_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(mut waiting) = self.waiting.pop_front() else {
                return;
            };
            let handle = waiting.departure.to.ah;
            match self.handles.find(handle, clock) {
                Found::Making => {
                    self.waiting.push_back(waiting);
                    continue;
                }
                Found::Failed => self.counts.packets.tx_failed += 1,
                Found::Ready(address) => {
                    let mut pending = Pending {
                        departure: waiting.departure,
                        address: *address,
                        progress: Progress::default(),
                    };
                    if self.carry(&mut waiting.memory, &mut pending) == Sent::Blocked {
                        // It waited long enough.
                        self.counts.packets.tx_failed += 1;
                    }
                }
            }
            self.handles.release(handle);
        }
    }
}
