//! A TCP flow between applications of two hosts.

use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::Duration;
use smoltcp::wire::IpAddress;

use crate::network::{SECOND, Time};

const SLICE: usize = 4096;
/// Buffer for the reverse direction, which carries almost no data.
const LITTLE: usize = 512;

// If only a part of retransmitted data is acknowledged, smoltcp may not restart the timer for the rest. Of
// duplicate acknowledgements it heeds only the third after the last one with data. Answers to keep-alives
// are such duplicates; from time to time the receiver also sends data.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
const BEAT: Time = 5 * SECOND;

enum Side {
    /// With this total number of bytes.
    Sender(usize),
    /// Sends some data at this time.
    Receiver(Time),
}

/// An end of a flow.
pub struct Flow {
    socket: SocketHandle,
    side: Side,
    /// Bytes sent, or received.
    pub done: usize,
}

fn pattern(i: usize) -> u8 {
    (i * 7 + i / 251) as u8
}

fn add(sockets: &mut SocketSet<'static>, receive: usize, send: usize) -> SocketHandle {
    let buffer = |room| tcp::SocketBuffer::new(vec![0; room]);
    sockets.add(tcp::Socket::new(buffer(receive), buffer(send)))
}

impl Flow {
    /// A receiver that listens on a port.
    pub fn receiver(sockets: &mut SocketSet<'static>, room: usize, port: u16) -> Flow {
        let socket = add(sockets, room, LITTLE);
        let listening = sockets.get_mut::<tcp::Socket<'_>>(socket).listen(port);
        listening.expect("a port");
        Flow {
            socket,
            side: Side::Receiver(0),
            done: 0,
        }
    }

    /// A sender of `total` bytes.
    pub fn sender(
        stack: &mut Interface,
        sockets: &mut SocketSet<'static>,
        room: usize,
        to: (IpAddress, u16),
        total: usize,
    ) -> Flow {
        let socket = add(sockets, LITTLE, room);
        let own = 40_000 + to.1;
        let client = sockets.get_mut::<tcp::Socket<'_>>(socket);
        client.set_keep_alive(Some(KEEP_ALIVE));
        client
            .connect(stack.context(), to, own)
            .expect("an address of our own");
        Flow {
            socket,
            side: Side::Sender(total),
            done: 0,
        }
    }

    /// Sends as much as fits, or receives and compares the data.
    pub fn run(&mut self, now: Time, sockets: &mut SocketSet<'static>) {
        let socket = sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        match &mut self.side {
            Side::Sender(total) => {
                while socket.can_send() && self.done < *total {
                    let end = self.done.saturating_add(SLICE).min(*total);
                    let bytes: Vec<u8> = (self.done..end).map(pattern).collect();
                    self.done += socket.send_slice(&bytes).expect("it can send");
                }
                while socket.can_recv() {
                    socket.recv(|b| (b.len(), ())).expect("it can receive");
                }
            }
            Side::Receiver(beat) => {
                while socket.can_recv() {
                    let done = self.done;
                    let taken = socket.recv(|bytes| {
                        let right = bytes.iter().zip(done..).all(|(b, i)| *b == pattern(i));
                        assert!(right, "wrong bytes behind {done}");
                        (bytes.len(), bytes.len())
                    });
                    self.done += taken.expect("it can receive");
                }
                if *beat <= now {
                    *beat = now + BEAT;
                    // Without a connection the data is lost.
                    let _ = socket.send_slice(b".");
                }
            }
        }
    }

    /// The time at which the flow must run at the latest.
    pub fn wakes(&self, sockets: &SocketSet<'static>) -> Option<Time> {
        let open = sockets.get::<tcp::Socket<'_>>(self.socket).is_open();
        match self.side {
            Side::Receiver(beat) if open => Some(beat),
            _ => None,
        }
    }

    /// Sends a reset and nothing else.
    pub fn abort(&self, sockets: &mut SocketSet<'static>) {
        sockets.get_mut::<tcp::Socket<'_>>(self.socket).abort();
    }
}
