//! The TAP between a stack and its core.

use std::collections::VecDeque;

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// The two queues, and the MTU for the stack.
pub struct Tap {
    pub to_stack: VecDeque<Vec<u8>>,
    pub from_stack: VecDeque<Vec<u8>>,
    pub mtu: usize,
}

impl Tap {
    pub fn new(mtu: usize) -> Tap {
        Tap {
            to_stack: VecDeque::new(),
            from_stack: VecDeque::new(),
            mtu,
        }
    }
}

pub struct Received(Vec<u8>);
pub struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let r = f(&mut frame);
        self.0.push_back(frame);
        r
    }
}

impl Device for Tap {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        let frame = self.to_stack.pop_front()?;
        Some((Received(frame), Sending(&mut self.from_stack)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.from_stack))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut c = DeviceCapabilities::default();
        c.medium = Medium::Ethernet;
        c.max_transmission_unit = self.mtu + 14;
        c
    }
}
