//! Payloads of messages, and their check.

use anyhow::{Result, ensure};

/// `ibv_rc_pingpong -c` sets and checks the first byte of each memory page; it must be 0.
const PAGE: usize = 4096;

/// The fill byte of rdma-core's ping-pongs.
const FILL: u8 = 0x7b;

/// Message `number` of `ibtap-peer`, from 0. Each byte depends on its message and its place.
pub fn ours(number: u32, size: usize) -> Vec<u8> {
    (0..size).map(|i| byte(number, i)).collect()
}

/// A hash of message number and place.
fn byte(number: u32, i: usize) -> u8 {
    if i.is_multiple_of(PAGE) {
        return 0;
    }
    let mut mixed = number.wrapping_mul(0x9e37_79b1) ^ i as u32;
    for _ in 0..2 {
        mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
    }
    mixed.to_be_bytes()[0]
}

/// Whether this is a payload of rdma-core's ping-pongs: [`FILL`], except for the marks.
fn is_fill(payload: &[u8]) -> bool {
    let right = |(i, &b): (usize, &u8)| b == FILL || (b == 0 && i.is_multiple_of(PAGE));
    payload.iter().enumerate().all(right)
}

/// The expected payloads of a peer. `ibtap-peer` sends [`ours`]. rdma-core's ping-pongs send [`FILL`]; its other
/// programs send uninitialized memory, the same in all messages.
#[derive(Debug)]
pub struct Expected {
    size: usize,
    next: u32,
    /// Whether [`FILL`] is also correct.
    fill: bool,
    /// The first message, if the peer sends uninitialized memory.
    first: Option<Vec<u8>>,
}

impl Expected {
    /// The payloads of a ping-pong.
    pub fn pingpong(size: usize) -> Expected {
        Expected {
            size,
            next: 0,
            fill: true,
            first: None,
        }
    }

    /// The payloads of a program that repeats its memory.
    pub fn repeated(size: usize) -> Expected {
        Expected {
            fill: false,
            ..Expected::pingpong(size)
        }
    }

    /// Checks the next message.
    ///
    /// # Errors
    /// A sentence about the difference.
    pub fn check(&mut self, payload: &[u8]) -> Result<()> {
        let number = self.next;
        self.next += 1;
        same_size(number, payload, self.size)?;
        if let Some(first) = &self.first {
            return same(number, payload, first);
        }
        let expected = ours(number, self.size);
        if payload == expected || self.fill && is_fill(payload) {
            return Ok(());
        }
        if number == 0 && !self.fill {
            self.first = Some(payload.to_vec());
            return Ok(());
        }
        same(number, payload, &expected)
    }
}

fn same_size(number: u32, payload: &[u8], size: usize) -> Result<()> {
    ensure!(
        payload.len() == size,
        "message {number} has {} bytes instead of {size}",
        payload.len()
    );
    Ok(())
}

/// Checks that message `number` is as expected.
///
/// # Errors
/// A sentence about the difference.
pub fn same(number: u32, payload: &[u8], expected: &[u8]) -> Result<()> {
    same_size(number, payload, expected.len())?;
    let differs = payload.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = differs {
        anyhow::bail!(
            "message {number} has changed: byte {at} is {:#04x} instead of {:#04x}",
            payload[at],
            expected[at]
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_at_another_place_or_of_another_message_shows() {
        let message = ours(3, 5000);
        for other in [ours(2, 5000), ours(4, 5000)] {
            let differ = message.iter().zip(&other).filter(|(a, b)| a != b).count();
            assert!(differ > 4900, "{differ}");
        }
        for shift in 1..1100 {
            let moved = message[shift..].iter().zip(&message);
            let differ = moved.filter(|(a, b)| a != b).count();
            assert!(differ > 3000, "{shift}: {differ}");
        }
        for i in 0..message.len() {
            let mut wrong = message.clone();
            wrong[i] ^= 0x10;
            let error = same(3, &wrong, &message).unwrap_err().to_string();
            assert!(error.contains(&format!("byte {i} is")), "{error}");
        }
    }

    #[test]
    fn the_marks_of_pages_are_zero() {
        let message = ours(7, 8193);
        assert_eq!((message[0], message[4096], message[8192]), (0, 0, 0));
    }

    #[test]
    fn a_ping_pong_takes_its_own_and_rdma_cores() {
        let mut expected = Expected::pingpong(100);
        expected.check(&ours(0, 100)).unwrap();
        expected.check(&[FILL; 100]).unwrap();
        let mut marked = [FILL; 100];
        marked[0] = 0;
        expected.check(&marked).unwrap();
        marked[1] = 0;
        assert!(expected.check(&marked).is_err());
        assert!(expected.check(&ours(3, 100)).is_err(), "it is the fifth");
        assert!(expected.check(&ours(5, 99)).is_err());
        expected.check(&ours(6, 100)).unwrap();
    }

    #[test]
    fn repeated_messages_are_ours_or_all_the_same() {
        let mut expected = Expected::repeated(8);
        expected.check(&ours(0, 8)).unwrap();
        assert!(expected.check(&[9; 8]).is_err());
        let mut expected = Expected::repeated(8);
        expected.check(&[9; 8]).unwrap();
        expected.check(&[9; 8]).unwrap();
        assert!(expected.check(&ours(2, 8)).is_err());
        assert!(expected.check(&[9; 7]).is_err());
    }
}
