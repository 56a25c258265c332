//! The messages of one direction: those posted, those that must arrive, and those that must be
//! completed.

use std::collections::VecDeque;
use std::sync::LazyLock;

use fabric::WcStatus;
use fabric::soft::rc::{Layout, ReceivedMessage, SendBuffer, SendCompletion, SendRequest};

use crate::random::Random;
use crate::scenario::Sizes;

/// The longest message of any scenario.
pub const MESSAGE_MAX: usize = 1 << 20;

/// Random-like bytes; each message is a part of them.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random::new(4);
    (0..2 * MESSAGE_MAX / 8)
        .flat_map(|_| random.word().to_le_bytes())
        .collect()
});

/// A message.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// Offset of its bytes in the pattern.
    at: usize,
    len: usize,
    immediate: Option<[u8; 4]>,
    solicited: bool,
}

impl Message {
    fn bytes(&self) -> &'static [u8] {
        &PATTERN[self.at..self.at + self.len]
    }
}

/// A posted request.
#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    /// Messages posted, up to and including this request.
    messages: u64,
}

/// One direction of a connection.
#[derive(Debug)]
pub struct Flow {
    random: Random,
    sizes: Sizes,
    /// Payload bytes of one packet.
    mtu: usize,
    /// Messages still to post.
    pub wanted: u64,
    /// Messages posted, arrived, and successfully completed.
    pub posted: u64,
    pub arrived: u64,
    pub completed: u64,
    /// Messages lost by a failure.
    pub lost: u64,
    expected: VecDeque<Message>,
    requests: VecDeque<Request>,
    next_id: u64,
    /// The status of the first failed request.
    failed: Option<WcStatus>,
    spare: Vec<Vec<u8>>,
}

impl Flow {
    pub fn new(seed: u64, sizes: Sizes, mtu: usize, wanted: u64) -> Flow {
        Flow {
            random: Random::new(seed),
            sizes,
            mtu,
            wanted,
            posted: 0,
            arrived: 0,
            completed: 0,
            lost: 0,
            expected: VecDeque::new(),
            requests: VecDeque::new(),
            next_id: 0,
            failed: None,
            spare: Vec::new(),
        }
    }

    /// Whether all messages are posted, have arrived and are completed.
    pub fn is_done(&self) -> bool {
        self.wanted == 0 && self.requests.is_empty() && self.expected.is_empty()
    }

    /// Number of incomplete requests.
    pub fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// The next request to post.
    pub fn request(&mut self) -> SendRequest {
        let len = self.sizes.draw(&mut self.random, self.mtu);
        self.request_of(len)
    }

    /// A request whose (first) message has `len` bytes.
    pub fn request_of(&mut self, len: usize) -> SendRequest {
        let several = len > 0 && len <= self.mtu && self.wanted > 1 && self.random.percent(25);
        let memory = self.spare.pop().unwrap_or_default();
        let immediate = self
            .random
            .percent(10)
            .then(|| (self.random.word() as u32).to_be_bytes());
        let solicited = self.random.percent(10);
        let buffer = if several {
            let count = self.random.between(2, 16).min(self.wanted) as usize;
            self.fill_many(memory, len, count)
        } else {
            self.fill_one(memory, len)
        };
        let last = self.expected.back_mut().expect("one was just added");
        (last.immediate, last.solicited) = (immediate, solicited);
        self.next_id += 1;
        self.requests.push_back(Request {
            id: self.next_id,
            messages: self.posted,
        });
        SendRequest {
            id: self.next_id,
            buffer,
            immediate,
            solicited,
        }
    }

    fn expect(&mut self, len: usize) -> Message {
        let message = Message {
            at: self.random.below((PATTERN.len() - len) as u64) as usize,
            len,
            immediate: None,
            solicited: false,
        };
        self.expected.push_back(message);
        self.posted += 1;
        self.wanted -= 1;
        message
    }

    fn fill_one(&mut self, memory: Vec<u8>, len: usize) -> SendBuffer {
        let packets = len.div_ceil(self.mtu).max(1);
        let mut buffer = SendBuffer::new(memory, Layout::Message, self.mtu, packets);
        let message = self.expect(len);
        let mut places = buffer.places();
        if len == 0 {
            places.next(0).expect("a place");
        }
        for piece in message.bytes().chunks(self.mtu) {
            let place = places.next(piece.len()).expect("as many places as pieces");
            place.copy_from_slice(piece);
        }
        buffer.ticket = places.finish();
        buffer
    }

    fn fill_many(&mut self, memory: Vec<u8>, len: usize, count: usize) -> SendBuffer {
        let mut buffer = SendBuffer::new(memory, Layout::Messages, len, count);
        for k in 0..count {
            let short = k + 1 == count && self.random.percent(30);
            let len = if short {
                self.random.below(len as u64) as usize
            } else {
                len
            };
            let message = self.expect(len);
            let mut places = buffer.places();
            let place = places.next(len).expect("as many places as messages");
            place.copy_from_slice(message.bytes());
            buffer.ticket = places.finish();
        }
        buffer
    }

    /// Checks a received message: it must be the next one, and whole.
    pub fn arrive<'a>(&mut self, got: &ReceivedMessage, parts: impl Iterator<Item = &'a [u8]>) {
        let number = self.arrived;
        let Some(wanted) = self.expected.pop_front() else {
            panic!("message {number} arrived, and nothing was under way");
        };
        assert_eq!(got.len, wanted.len, "length of message {number}");
        assert_eq!(got.immediate, wanted.immediate, "immediate of {number}");
        assert_eq!(got.solicited, wanted.solicited, "solicited of {number}");
        let mut rest = wanted.bytes();
        for part in parts {
            assert!(part.len() <= rest.len(), "message {number} is too long");
            let (these, those) = rest.split_at(part.len());
            assert!(part == these, "message {number} differs from what was sent");
            rest = those;
        }
        assert!(rest.is_empty(), "message {number} is cut short");
        self.arrived += 1;
    }

    /// Checks a completion: it must be that of the oldest request. After success all its messages must
    /// have arrived; after a failure all further requests must be flushed.
    pub fn complete(&mut self, got: SendCompletion) {
        let Some(oldest) = self.requests.pop_front() else {
            panic!("request {} is completed twice", got.id);
        };
        assert_eq!(got.id, oldest.id, "order of completions");
        match (got.status, self.failed) {
            (WcStatus::Success, None) => {
                assert!(
                    oldest.messages <= self.arrived + self.lost,
                    "request {} is completed before its messages arrived",
                    got.id
                );
                self.completed = oldest.messages;
            }
            (status, None) => self.failed = Some(status),
            (status, Some(_)) => assert_eq!(status, WcStatus::WrFlushErr, "after a failure"),
        }
        self.spare.push(got.buffer.memory);
    }

    /// Ends the flow with its connection: all requests must be completed. Messages that have not
    /// arrived count as lost. Returns the status of the first failed request.
    pub fn break_off(&mut self) -> Option<WcStatus> {
        assert!(self.requests.is_empty(), "requests that nothing completed");
        self.lost += self.expected.len() as u64;
        self.expected.clear();
        self.failed.take()
    }
}
