//! Bytes that one host's application sends to another's, over TCP.

use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::Duration;
use smoltcp::wire::IpAddress;

const SLICE: usize = 4096;
/// When part of what it sent again is acknowledged, smoltcp may forget that the rest needs a timer.
/// The answers to these remind it.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// One end of a flow.
pub struct Flow {
    socket: SocketHandle,
    /// Bytes in all; 0 at the receiver.
    total: usize,
    /// Bytes sent, or received.
    pub done: usize,
}

fn pattern(i: usize) -> u8 {
    (i * 7 + i / 251) as u8
}

/// Room for what goes the other way: nothing.
const LITTLE: usize = 512;

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
            total: 0,
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
            total,
            done: 0,
        }
    }

    /// Sends what there is room for, and takes what is there, which must be what was sent.
    pub fn run(&mut self, sockets: &mut SocketSet<'static>) {
        let socket = sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        while socket.can_send() && self.done < self.total {
            let end = self.total.min(self.done + SLICE);
            let bytes: Vec<u8> = (self.done..end).map(pattern).collect();
            self.done += socket.send_slice(&bytes).expect("it can send");
        }
        while socket.can_recv() {
            let done = self.done;
            let taken = socket.recv(|bytes| {
                let right = bytes.iter().zip(done..).all(|(b, i)| *b == pattern(i));
                assert!(right, "wrong bytes behind {done}");
                (bytes.len(), bytes.len())
            });
            self.done += taken.expect("it can receive");
        }
    }

    /// Sends a reset, and nothing after it.
    pub fn abort(&self, sockets: &mut SocketSet<'static>) {
        sockets.get_mut::<tcp::Socket<'_>>(self.socket).abort();
    }
}
