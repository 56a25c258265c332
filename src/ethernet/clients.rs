//! Ethernet Managers that are clients of the control socket.
//!
//! Each has a bounded queue. A client that reads too slowly loses datagrams, as on a fabric, and gets the
//! number of lost ones.

use std::collections::{BTreeMap, VecDeque};

use control::api::{ApiError, ManageReply, ManagementDatagram, ManagementPort, Reply};
use control::config::PortName;
use control::{StreamId, Streamed};

/// Maximum number of waiting datagrams for one client: the pages of some MAC tables.
const QUEUE_MAX: usize = 4096;

/// All managers.
#[derive(Debug, Default)]
pub struct Clients {
    all: BTreeMap<StreamId, Client>,
}

#[derive(Debug)]
struct Client {
    port: PortName,
    /// The port's address, until the client has got it.
    attached: Option<ManagementPort>,
    queue: VecDeque<ManagementDatagram>,
    lost: u64,
    /// The port was closed.
    over: bool,
}

impl Clients {
    /// Adds a client; its first reply has the port's address.
    pub fn add(&mut self, stream: StreamId, port: PortName, attached: ManagementPort) {
        let client = Client {
            port,
            attached: Some(attached),
            queue: VecDeque::new(),
            lost: 0,
            over: false,
        };
        self.all.insert(stream, client);
    }

    /// Removes a client, if it manages. Returns the port that it managed over.
    pub fn remove(&mut self, stream: StreamId) -> Option<PortName> {
        self.all.remove(&stream).map(|client| client.port)
    }

    /// Whether a client manages over a port.
    pub fn are_on(&self, port: &PortName) -> bool {
        self.all.values().any(|client| client.port == *port)
    }

    /// A port was closed.
    pub fn port_closed(&mut self, port: &PortName) {
        for client in self.on(port) {
            client.over = true;
        }
    }

    /// The address of a port changed.
    pub fn moved(&mut self, port: &PortName, attached: &ManagementPort) {
        for client in self.on(port) {
            client.attached = Some(attached.clone());
        }
    }

    /// A port received a datagram.
    pub fn received(&mut self, port: &PortName, datagram: &ManagementDatagram) {
        for client in self.on(port) {
            client.push(datagram.clone());
        }
    }

    /// The next reply for a client; `None` if it does not manage.
    pub fn next(&mut self, stream: StreamId) -> Option<Streamed> {
        let client = self.all.get_mut(&stream)?;
        Some(if let Some(attached) = client.attached.take() {
            Streamed::Reply(Reply::Manage(ManageReply::Attached(attached)))
        } else if let Some(datagram) = client.queue.pop_front() {
            Streamed::Reply(Reply::Manage(ManageReply::Received(datagram)))
        } else if client.over {
            let message = format!("the port {} was closed", client.port);
            Streamed::Last(Err(ApiError::Refused { message }))
        } else {
            Streamed::Nothing
        })
    }

    fn on(&mut self, port: &PortName) -> impl Iterator<Item = &mut Client> {
        self.all.values_mut().filter(move |c| c.port == *port)
    }
}

impl Client {
    fn push(&mut self, mut datagram: ManagementDatagram) {
        if self.queue.len() >= QUEUE_MAX {
            self.lost += 1;
            return;
        }
        let lost = std::mem::take(&mut self.lost);
        datagram.lost = (lost > 0).then_some(lost);
        self.queue.push_back(datagram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::api::{Hex, PortState};
    use fabric::{PKey, Qpn};

    const A: StreamId = StreamId(1);
    const B: StreamId = StreamId(2);

    fn port(name: &str) -> PortName {
        PortName::Underlay(name.into())
    }

    fn attached(qpn: u32) -> ManagementPort {
        ManagementPort {
            port: "soft/eth0".into(),
            gid: "fe80::1".parse().unwrap(),
            qpn: Qpn::new(qpn),
            guid: String::new(),
            pkey: PKey::DEFAULT,
            link_mtu: 4096,
            state: PortState::Active,
        }
    }

    fn datagram(byte: u8) -> ManagementDatagram {
        ManagementDatagram {
            gid: "fe80::2".parse().unwrap(),
            qpn: Qpn::new(9),
            by_group: false,
            mad: Hex(vec![byte]),
            lost: None,
        }
    }

    fn taken(clients: &mut Clients, stream: StreamId) -> Option<ManageReply> {
        match clients.next(stream) {
            Some(Streamed::Reply(Reply::Manage(reply))) => Some(reply),
            Some(Streamed::Nothing) => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_ports_address_comes_before_its_datagrams() {
        let mut clients = Clients::default();
        clients.add(A, port("eth0"), attached(2));
        clients.add(B, port("eth1"), attached(3));
        clients.received(&port("eth0"), &datagram(1));
        clients.moved(&port("eth0"), &attached(4));
        let first = taken(&mut clients, A);
        assert_eq!(first, Some(ManageReply::Attached(attached(4))));
        let second = taken(&mut clients, A);
        assert_eq!(second, Some(ManageReply::Received(datagram(1))));
        assert_eq!(taken(&mut clients, A), None);
        assert!(matches!(
            taken(&mut clients, B),
            Some(ManageReply::Attached(_))
        ));
        assert_eq!(taken(&mut clients, B), None, "another port's");
    }

    #[test]
    fn slow_clients_get_the_number_of_lost_datagrams() {
        let mut clients = Clients::default();
        clients.add(A, port("eth0"), attached(2));
        taken(&mut clients, A);
        for _ in 0..QUEUE_MAX + 5 {
            clients.received(&port("eth0"), &datagram(1));
        }
        for _ in 0..QUEUE_MAX {
            let Some(ManageReply::Received(one)) = taken(&mut clients, A) else {
                panic!("nothing");
            };
            assert_eq!(one.lost, None);
        }
        assert_eq!(taken(&mut clients, A), None);
        clients.received(&port("eth0"), &datagram(2));
        let Some(ManageReply::Received(one)) = taken(&mut clients, A) else {
            panic!("nothing");
        };
        assert_eq!(one.lost, Some(5));
    }

    #[test]
    fn a_port_that_is_closed_ends_its_streams() {
        let mut clients = Clients::default();
        clients.add(A, port("eth0"), attached(2));
        taken(&mut clients, A);
        assert!(clients.are_on(&port("eth0")) && !clients.are_on(&port("eth1")));
        clients.port_closed(&port("eth0"));
        assert!(matches!(clients.next(A), Some(Streamed::Last(Err(_)))));
        assert_eq!(clients.remove(A), Some(port("eth0")));
        assert!(clients.next(A).is_none());
        assert_eq!(clients.remove(A), None);
    }
}
