//! A TCP connection with compared bytes.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};

use super::{Load, Station};

const BYTES: usize = 32 << 20;
const PORT: u16 = 7007;

/// Sends 32 MiB from one station to an address of another, which must receive them unchanged.
pub fn arrives_whole(from: &Station, to: &Station, address: &str) {
    let _turn = Load::begin();
    let address: IpAddr = address.parse().expect("an address");
    let listener = to
        .namespace()
        .within(|| TcpListener::bind((address, PORT)).expect("a listener"));
    let mut sender = from
        .namespace()
        .within(|| TcpStream::connect((address, PORT)).expect("a connection"));
    let (mut receiver, _) = listener.accept().expect("accepted");
    // The pattern's period is not a multiple of a segment: a lost or moved segment shows.
    let pattern = |at: usize| (at.wrapping_mul(2_654_435_761) >> 11) as u8;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let data: Vec<u8> = (0..BYTES).map(pattern).collect();
            sender.write_all(&data).expect("sent");
        });
        let mut got = Vec::with_capacity(BYTES);
        receiver.read_to_end(&mut got).expect("received");
        assert_eq!(got.len(), BYTES);
        let wrong = got
            .iter()
            .enumerate()
            .find(|&(at, &byte)| byte != pattern(at));
        assert_eq!(wrong, None);
    });
}
