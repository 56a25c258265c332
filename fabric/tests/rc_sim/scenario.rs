//! The parameters of a simulated world, drawn from a seed.

use fabric::IbMtu;

use crate::network::{Impairments, MICROSECOND, MILLISECOND, Time};
use crate::random::Random;

/// The lengths of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// Up to 256 bytes.
    Small,
    /// Around one, two and three times the path MTU.
    Edges,
    /// Like IP traffic: mostly full packets of one path MTU, some longer.
    Traffic,
    /// Around 64 KiB, as connected mode sends.
    Jumbo,
    /// Up to the receive buffer's megabyte.
    Huge,
}

impl Sizes {
    pub fn draw(self, random: &mut Random, mtu: usize) -> usize {
        let mtu = mtu as u64;
        let len = match self {
            Sizes::Small => random.below(257),
            Sizes::Edges => (mtu * random.between(1, 3) + random.between(0, 2)).saturating_sub(1),
            Sizes::Traffic => match random.below(100) {
                0 => 0,
                1..=39 => random.below(128),
                40..=94 => mtu - random.below(8),
                _ => random.below(8 * mtu),
            },
            Sizes::Jumbo => random.between(60_000, 65_524),
            Sizes::Huge => random.between(100_000, crate::flow::MESSAGE_MAX as u64),
        };
        len as usize
    }

    /// The maximum length in bytes.
    pub fn most(self, mtu: usize) -> usize {
        match self {
            Sizes::Small => 256,
            Sizes::Edges => 3 * mtu + 1,
            Sizes::Traffic => 8 * mtu,
            Sizes::Jumbo => 65_524,
            Sizes::Huge => crate::flow::MESSAGE_MAX,
        }
    }
}

/// The attributes of queue pairs.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The local ACK timeout's code.
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    /// The timer code in RNR NAKs.
    pub min_rnr_timer: u8,
}

impl Patience {
    /// The attributes that we request.
    pub const OURS: Patience = Patience {
        timeout: 15,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
    };

    /// The local ACK timeout.
    pub fn ack_timeout(&self) -> Time {
        4096 << self.timeout
    }
}

/// Trouble other than the network's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    None,
    /// Links are cut at times, for less time than the retries last.
    Outages,
    /// A node stops for good, and its neighbours must notice.
    Vanish,
    /// A node stops for up to three seconds, or its clock steps forward.
    Pauses,
    /// Queue pairs are drained and restarted.
    Drains,
    /// An attacker sends requests and responses in the name of the peers, with PSNs far from those in
    /// use.
    Forgeries,
}

/// Permitted failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failures {
    None,
    /// RETRY_EXC_ERR.
    Retry,
    /// RETRY_EXC_ERR and RNR_RETRY_EXC_ERR.
    RetryAndRnr,
}

/// A simulated world.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub nodes: usize,
    /// Number of connections, each of two directions.
    pub connections: usize,
    /// Messages in each direction of each connection.
    pub messages: u64,
    pub impairments: Impairments,
    pub mtu: IbMtu,
    pub sizes: Sizes,
    pub patience: Patience,
    /// Receive buffers of a node.
    pub buffers: usize,
    /// Maximum time that the consumer keeps a buffer.
    pub hold: Time,
    /// Bytes of a node's socket buffer.
    pub socket: usize,
    /// Whether responders are like those of `rdma_rxe`.
    pub plain_responders: bool,
    /// Whether they acknowledge packets without AckReq, too.
    pub acknowledges_all: bool,
    /// Shares of requests with AckReq and of acknowledgements that are lost in addition, in millionths.
    pub asks_lost: u32,
    pub answers_lost: u32,
    /// Time that a node needs for a datagram.
    pub cost: Time,
    /// Maximum number of messages in a row, and maximum pause between rows.
    pub burst: u64,
    pub gap: Time,
    /// Share of sends that the socket takes only in part, in millionths.
    pub blocked: u32,
    pub trouble: Trouble,
    pub failures: Failures,
}

impl Scenario {
    /// A network without faults; other parameters are drawn.
    pub fn fair(seed: u64, messages: u64) -> Scenario {
        let mut random = Random::new(seed ^ 0x5ce0);
        let sizes = random.one_of(&[Sizes::Small, Sizes::Edges, Sizes::Traffic, Sizes::Traffic]);
        Scenario {
            seed,
            nodes: 2,
            connections: 1,
            messages,
            impairments: Impairments {
                latency: random.one_of(&[5, 20, 100, 1000]) * MICROSECOND,
                jitter: random.one_of(&[0, 5, 50]) * MICROSECOND,
                ..Impairments::default()
            },
            mtu: random.one_of(&IbMtu::ALL),
            sizes,
            patience: Patience::OURS,
            buffers: 512,
            hold: 0,
            socket: 4 << 20,
            plain_responders: false,
            acknowledges_all: false,
            asks_lost: 0,
            answers_lost: 0,
            cost: 0,
            burst: random.one_of(&[1, 4, 64, 1000]),
            gap: random.one_of(&[0, 50 * MICROSECOND, 2 * MILLISECOND]),
            blocked: random.one_of(&[0, 0, 50_000]),
            trouble: Trouble::None,
            failures: Failures::None,
        }
    }

    /// The same with more nodes, all connected to each other.
    pub fn meshed(self, nodes: usize) -> Scenario {
        let connections = nodes * (nodes - 1) / 2;
        Scenario {
            nodes,
            connections,
            messages: self.messages.div_ceil(connections as u64),
            ..self
        }
    }

    /// The same over a network with faults of every kind, among them up to `loss` per cent of loss,
    /// partly in bursts.
    pub fn faulty(self, loss: u64) -> Scenario {
        let mut random = Random::new(self.seed ^ 0xfa17);
        let loss = 10_000 * random.between(0, loss);
        let loss_goes_on = random.one_of(&[0, 0, 300_000]);
        // Losses that follow a loss are part of the share.
        let begins =
            loss * (1_000_000 - loss_goes_on) / (1_000_000 - loss_goes_on * loss / 1_000_000);
        Scenario {
            impairments: Impairments {
                loss: begins as u32,
                loss_goes_on: loss_goes_on as u32,
                duplicate: random.one_of(&[0, 10_000, 100_000]),
                corrupt: random.one_of(&[0, 1_000, 20_000]),
                reorder: random.one_of(&[0, 10_000, 200_000]),
                spike: random.one_of(&[50 * MICROSECOND, MILLISECOND, 20 * MILLISECOND]),
                ..self.impairments
            },
            ..self
        }
    }
}
