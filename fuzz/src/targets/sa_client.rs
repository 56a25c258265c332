//! A client of subnet administration whose administrator sends anything. Every request must end at most
//! once, the client must stay within its bounds, and sent datagrams must be readable.
//!
//! Input: steps. A step's byte: 0x07 the action (0 to 3 a datagram, 4 a request, 5 cancel, 6 renew, 7 time
//! passes), 0xf8 the request. After a datagram's byte: a byte of changes (1 unknown transaction id, 2 a
//! Report, 4 RMPP, 8 one byte changed, the low four bits of the next two bytes), RMPP type, flags, segment
//! number and length (a byte each), the number of bytes of records divided by 4. After the byte of time:
//! 100 ms units.

use std::collections::BTreeSet;
use std::time::Duration;

use fabric::mad::{MAD_LEN, Mad, class, method, sa};
use fabric::sa::{Client, ClientConfig, Event, Request, TransactionId};
use fabric::{Gid, Instant};

const IN_FLIGHT: usize = 4;
const QUEUE: usize = 4;

struct User {
    client: Client,
    now: Instant,
    open: BTreeSet<TransactionId>,
    /// The last datagram sent for each request, newest last.
    sent: Vec<[u8; MAD_LEN]>,
}

impl User {
    fn attend(&mut self) {
        while let Some(event) = self.client.poll_event() {
            if let Event::Answered { id, result } = event {
                assert!(self.open.remove(&id), "a request ends once");
                match result {
                    Ok(response) => {
                        for record in response.records() {
                            assert_eq!(record.len(), response.record_len);
                        }
                        let _ = response.first::<sa::McMemberRecord>();
                    }
                    Err(failure) => assert!(!failure.to_string().is_empty()),
                }
            }
        }
        while let Some(datagram) = self.client.poll_transmit() {
            let mad = Mad::parse(&datagram).expect("what is sent is a datagram");
            assert_eq!(mad.header.mgmt_class, class::SUBN_ADM);
            if mad.header.method & method::RESPONSE == 0 {
                self.sent.push(datagram);
            }
        }
        if self.sent.len() > 32 {
            self.sent.drain(..16);
        }
        assert_eq!(self.client.open(), self.open.len());
        assert!(self.open.len() <= IN_FLIGHT + QUEUE);
        let waits = self.client.next_deadline().is_some();
        assert_eq!(waits, !self.open.is_empty(), "a request is forgotten");
    }

    fn datagram(&mut self, which: u8, input: &mut impl Iterator<Item = u8>) {
        let mut next = || input.next().unwrap_or(0);
        let places = self.sent.len().max(1);
        let base = self.sent.get(usize::from(which) % places).copied();
        let mut mad = base.unwrap_or([1; MAD_LEN]);
        mad[3] = if mad[3] == method::SET {
            method::GET_RESP
        } else {
            mad[3] | method::RESPONSE
        };
        let changes = next();
        if changes & 1 != 0 {
            mad[15] ^= 0x55;
        }
        if changes & 2 != 0 {
            mad[3] = method::REPORT;
            mad[17] = 2;
        }
        let rmpp = [next(), next(), next(), next()];
        if changes & 4 != 0 {
            mad[24..28].copy_from_slice(&[1, rmpp[0] & 7, rmpp[1] & 7, rmpp[0] >> 7]);
            mad[31] = rmpp[2];
            mad[35] = rmpp[3];
            mad[45] = 7;
        }
        if changes & 8 != 0 {
            mad[usize::from(rmpp[0])] ^= rmpp[1];
        }
        let mut bytes = mad.to_vec();
        let records = usize::from(next());
        if records != 0 {
            bytes.resize(records * 4, 7);
        }
        self.client.receive(self.now, &bytes);
    }
}

pub fn run(data: &[u8]) {
    let mut input = data.iter().copied();
    let own_rmpp = input.next().unwrap_or(0) & 1 == 0;
    let mut user = User {
        client: Client::new(ClientConfig {
            seed: [7, 7],
            own_rmpp,
            first_timeout: Duration::from_millis(500),
            tries: 3,
            in_flight_max: IN_FLIGHT,
            queue_max: QUEUE,
        }),
        now: Instant(1),
        open: BTreeSet::new(),
        sent: Vec::new(),
    };
    while let Some(step) = input.next() {
        let n = step >> 3;
        match step & 7 {
            4 => {
                let request = match n % 4 {
                    0 => Request::class_port_info(),
                    1 => Request::subscribe(u16::from(n)),
                    _ => Request::group(Gid([n; 16])),
                };
                if let Ok(id) = user.client.ask(user.now, request) {
                    assert!(user.open.insert(id));
                }
            }
            5 => {
                let id = user.open.iter().nth(usize::from(n)).copied();
                if let Some(id) = id {
                    user.client.cancel(user.now, id);
                    user.open.remove(&id);
                }
            }
            6 => user.client.renew(user.now),
            7 => {
                let units = u32::from(input.next().unwrap_or(0));
                user.now = user.now.after(Duration::from_millis(100) * units);
                user.client.handle_timeout(user.now);
            }
            _ => user.datagram(n, &mut input),
        }
        user.attend();
    }
    for _ in 0..1000 {
        let Some(at) = user.client.next_deadline() else {
            break;
        };
        user.client.handle_timeout(at);
        user.attend();
    }
    assert!(user.open.is_empty(), "every request ends");
}
