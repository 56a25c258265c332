//! A TCP connection with compared bytes.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::LazyLock;

use super::{Load, Station};

const BYTES: usize = 32 << 20;
const PORT: u16 = 7007;

/// The bytes of every transfer, computed once: tests are compiled without optimization. The period of the pattern is
/// not a multiple of a segment: a lost or moved segment shows.
static SENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let pattern = |at: usize| (at.wrapping_mul(2_654_435_761) >> 11) as u8;
    (0..BYTES).map(pattern).collect()
});

/// Sends 32 MiB from one station to an address of another, which must receive them unchanged.
pub fn arrives_whole(from: &Station, to: &Station, address: &str) {
    // Before the turn: other tests with load need not wait for this.
    let sent: &[u8] = &SENT;
    let _turn = Load::begin();
    let address: IpAddr = address.parse().expect("an address");
    let listener = to
        .namespace()
        .within(|| TcpListener::bind((address, PORT)).expect("a listener"));
    let mut sender = from
        .namespace()
        .within(|| TcpStream::connect((address, PORT)).expect("a connection"));
    let (mut receiver, _) = listener.accept().expect("accepted");
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(sent).expect("sent"));
        let mut got = Vec::with_capacity(BYTES);
        receiver.read_to_end(&mut got).expect("received");
        assert_eq!(got.len(), BYTES);
        assert!(
            got == sent,
            "the first wrong byte: {:?}",
            got.iter().zip(sent).position(|(got, sent)| got != sent)
        );
    });
}
