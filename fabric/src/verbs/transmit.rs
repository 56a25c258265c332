//! Sends datagrams: places are lent, posted and returned.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use proto::{EndpointId, QKey, Qpn, WcStatus};

use super::connections::Shape;
use super::device::{Device, Limits};
use super::endpoint::UdPair;
use super::ibv::{
    AddressHandle, Completed, Emptied, Place, Pool, QueuePair, SendList, Sends, UdTarget,
    WorkCompletion,
};
use crate::worker::TrainTicket;

/// Places that connections leave for datagrams.
const RESERVED: usize = 8;

/// A posted train. Its objects must live until it has been sent.
#[derive(Debug)]
struct Flight {
    from: EndpointId,
    packets: usize,
    _pair: Arc<UdPair>,
    _ah: Arc<AddressHandle>,
}

/// A train to be posted.
#[derive(Debug)]
pub struct Departure<'a> {
    /// Sending endpoint.
    pub from: EndpointId,
    /// Its queue pair.
    pub pair: &'a Arc<UdPair>,
    /// Address handle of the destination.
    pub ah: &'a Arc<AddressHandle>,
    /// Remote queue pair.
    pub qpn: Qpn,
    /// Remote Q_Key.
    pub qkey: QKey,
    /// The train in the place.
    pub train: TrainTicket,
}

/// Meaning of a completion.
#[derive(Debug)]
pub enum Returned {
    /// A train was sent, or failed with this status.
    Train(EndpointId, WcStatus),
    /// A packet of a train failed; the train returns with its last packet.
    Packet,
    /// A message of a connection failed; its place returns with the last message.
    Message,
    /// A place that connections have posted.
    Other(Place),
    /// Unknown work.
    Unknown,
}

/// Why a train was not posted.
#[derive(Debug)]
pub enum NotPosted {
    /// Too much is outstanding; the place is returned.
    Full(Place),
    /// The library refused it, perhaps after sending a part. The queue pair must be restarted.
    Refused(io::Error),
}

/// The transmit places, and the posted trains.
#[derive(Debug)]
pub struct Transmit {
    /// The posted places.
    pub pool: Pool,
    free: Vec<Place>,
    /// Trains by index of the place.
    flights: Vec<Option<Flight>>,
    list: SendList,
    limits: Limits,
    /// Outstanding packets of datagrams.
    outstanding: usize,
    of_endpoint: HashMap<EndpointId, usize, foldhash::fast::RandomState>,
}

impl Transmit {
    /// Takes the places of a device.
    pub fn new(device: &Device, (pool, free): (Pool, Vec<Place>)) -> Transmit {
        Transmit {
            flights: (0..free.len()).map(|_| None).collect(),
            pool,
            free,
            list: SendList::new(device.limits.train_packets),
            limits: device.limits,
            outstanding: 0,
            of_endpoint: HashMap::default(),
        }
    }

    /// Takes a free place.
    pub fn take(&mut self) -> Option<Place> {
        self.free.pop()
    }

    /// Takes a free place for a message if enough remain for datagrams.
    pub fn take_for_messages(&mut self) -> Option<Place> {
        if self.has_for_messages() {
            self.free.pop()
        } else {
            None
        }
    }

    /// Whether [`Transmit::take_for_messages`] would return a place.
    pub fn has_for_messages(&self) -> bool {
        self.free.len() > RESERVED
    }

    /// Returns a free place.
    pub fn give(&mut self, place: Place) {
        self.free.push(place);
    }

    /// Whether a place is free.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Posts a train as one list.
    ///
    /// # Errors
    /// [`NotPosted`]
    pub fn post(&mut self, place: Place, d: &Departure<'_>) -> Result<(), NotPosted> {
        let count = d.train.count;
        let queued = self.of_endpoint.get(&d.from).copied().unwrap_or(0);
        if self.outstanding + count > self.limits.ud_sends || queued + count > self.limits.ud_queue
        {
            return Err(NotPosted::Full(place));
        }
        let sends = Sends {
            to: Some(UdTarget {
                ah: d.ah,
                qpn: d.qpn,
                qkey: d.qkey,
            }),
            stride: d.train.payload,
            count,
            payload: d.train.payload,
            last: d.train.last,
        };
        let index = place.index() as usize;
        let posted = d
            .pair
            .qp
            .send(&mut self.list, &mut self.pool, place, &sends);
        let refused = match posted {
            Ok(()) => None,
            Err(refused) => {
                if let Some(place) = refused.place {
                    self.free.push(place);
                    return Err(NotPosted::Refused(refused.source));
                }
                Some(refused.source)
            }
        };
        // A part may be posted: keep the train as if all of it were, until the queue pair is reset.
        if let Some(flight) = self.flights.get_mut(index) {
            *flight = Some(Flight {
                from: d.from,
                packets: count,
                _pair: Arc::clone(d.pair),
                _ah: Arc::clone(d.ah),
            });
            self.outstanding += count;
            *self.of_endpoint.entry(d.from).or_default() += count;
        }
        refused.map_or(Ok(()), |source| Err(NotPosted::Refused(source)))
    }

    /// Posts messages of a connection as one list. If none was posted, the place is free again.
    ///
    /// # Errors
    /// Errors of ibv_post_send(3); the queue pair is unusable then.
    pub fn post_messages(
        &mut self,
        pair: &QueuePair,
        place: Place,
        shape: &Shape,
    ) -> io::Result<()> {
        let sends = Sends {
            to: None,
            stride: shape.stride,
            count: shape.count,
            payload: shape.len,
            last: shape.last,
        };
        let posted = pair.send(&mut self.list, &mut self.pool, place, &sends);
        posted.map_err(|refused| {
            self.free.extend(refused.place);
            refused.source
        })
    }

    /// Handles a send completion.
    pub fn completed(&mut self, completion: &WorkCompletion) -> Returned {
        let place = match self.pool.completed(completion) {
            Completed::Place(place) => place,
            Completed::Part(index) => {
                let is_train = self
                    .flights
                    .get(index as usize)
                    .is_some_and(Option::is_some);
                return match is_train {
                    true => Returned::Packet,
                    false => Returned::Message,
                };
            }
            Completed::Unknown => return Returned::Unknown,
        };
        match self.land(&place) {
            Some(from) => {
                self.free.push(place);
                Returned::Train(from, completion.status())
            }
            None => Returned::Other(place),
        }
    }

    /// Reclaims the places of a reset queue pair; returns the number of its trains.
    pub fn reclaim(&mut self, emptied: &Emptied) -> usize {
        let places = self.pool.reclaim(emptied);
        let count = places.len();
        for place in places {
            self.land(&place);
            self.free.push(place);
        }
        count
    }

    /// Takes back the place of a train.
    fn land(&mut self, place: &Place) -> Option<EndpointId> {
        let flight = self.flights.get_mut(place.index() as usize)?.take()?;
        self.outstanding -= flight.packets;
        if let Some(queued) = self.of_endpoint.get_mut(&flight.from) {
            *queued -= flight.packets;
            if *queued == 0 {
                self.of_endpoint.remove(&flight.from);
            }
        }
        Some(flight.from)
    }
}
