use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::*;

/// The stored queues: label and interface.
fn inherited(kept: &[(&str, &str)]) -> Inherited {
    let stored = |(label, interface): &(&str, &str)| Stored {
        label: (*label).to_owned(),
        interface: (*interface).to_owned(),
        namespace: None,
        fds: Vec::new(),
    };
    Inherited {
        interfaces: kept.iter().map(stored).collect(),
        ..Inherited::default()
    }
}

#[test]
fn interfaces_that_exchanged_their_names_are_found_by_them() {
    // Two interfaces that have exchanged their names.
    let mut kept = inherited(&[("ibtap-ib0", "ib1"), ("ibtap-ib1", "ib0")]);
    assert_eq!(kept.named("ib0", None).unwrap().label, "ibtap-ib1");
    assert_eq!(kept.named("ib1", None).unwrap().label, "ibtap-ib0");
    assert!(kept.named("ib0", None).is_none() && kept.labelled("ibtap-ib1").is_none());
}

#[test]
fn a_renamed_interface_is_found_by_what_it_was_stored_as() {
    let mut kept = inherited(&[("ibtap-ib0", "fast0"), ("ibtap-ib1", "ib1")]);
    assert!(kept.labelled("ibtap-ib2").is_none());
    assert_eq!(kept.labelled("ibtap-ib0").unwrap().interface, "fast0");
    kept.discard_rest();
    assert!(kept.labelled("ibtap-ib1").is_none());
}

#[test]
fn what_is_no_tap_is_not_kept() {
    let file = OwnedFd::from(File::open("/dev/null").unwrap());
    let mut kept = Inherited::new(vec![("ibtap-ib0".to_owned(), file)]);
    assert!(kept.labelled("ibtap-ib0").is_none());
}

#[test]
fn a_label_of_two_interfaces_identifies_none() {
    let mut kept = inherited(&[("ibtap-eth1", "eth1"), ("ibtap-eth1", "eth2")]);
    assert!(kept.labelled("ibtap-eth1").is_none());
    assert_eq!(kept.named("eth2", None).unwrap().interface, "eth2");
    assert_eq!(kept.labelled("ibtap-eth1").unwrap().interface, "eth1");
}

#[test]
fn labels_are_of_printable_ascii() {
    let labelled = |name: &str, netns: &str| {
        let text = format!("[[ipoib]]\nname = {name:?}\nunderlay = \"eth0\"\n{netns}");
        label(
            &control::config::Config::parse(&text, "t.toml")
                .unwrap()
                .ipoib[0]
                .interface,
        )
    };
    assert_eq!(labelled("ib0", ""), "ibtap-ib0");
    assert_eq!(labelled("\u{e4}0", ""), "ibtap-\\xc3\\xa40");
    assert_eq!(labelled("ib0", "netns = \"bl\u{fc}e\""), "ibtap-bl_e/ib0");
}

#[test]
fn sockets_are_in_their_order_and_belong_to_their_underlay() {
    let socket = || OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = |fd: &OwnedFd| rustix::net::getsockname(fd).unwrap();
    let labels = ["roce-eth0-10", "roce-a-b-0", "roce-eth0-2", "roce-eth0-x"];
    let kept: Vec<_> = labels.iter().map(|l| ((*l).to_owned(), socket())).collect();
    let addresses: Vec<_> = kept.iter().map(|(_, fd)| address(fd)).collect();
    let mut inherited = Inherited::new(kept);
    let mut of = |underlay: &str| {
        let sockets = inherited.sockets_of(&PortName::Underlay(underlay.to_owned()));
        let found = sockets.iter().map(|fd| address(fd));
        found
            .map(|a| addresses.iter().position(|b| *b == a).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("eth0"), [2, 0]);
    assert_eq!(of("eth0").len(), 0);
    assert_eq!(of("a-b"), [1]);
    assert_eq!(of("x").len(), 0);
}

#[test]
fn sockets_of_an_underlay_with_another_name_than_ascii_are_found() {
    let label = socket_label("\u{e4}0", 0);
    assert_eq!(label, "roce-\\xc3\\xa40-0");
    // The label stays when the store names the socket.
    assert_eq!(socket_label("\\xc3\\xa40", 0), label);
    let socket = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let mut inherited = Inherited::new(vec![(label, socket)]);
    let underlay = PortName::Underlay("\u{e4}0".to_owned());
    assert_eq!(inherited.sockets_of(&underlay).len(), 1);
}

/// The messages that a socket received, each with its number of descriptors.
fn received(socket: &UnixDatagram) -> Vec<(String, usize)> {
    socket.set_nonblocking(true).unwrap();
    let mut all = Vec::new();
    loop {
        let mut text = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut text)];
        let Ok(got) = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) else {
            return all;
        };
        let fds = control.drain().map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.count(),
            _ => 0,
        });
        let fds = fds.sum();
        all.push((
            String::from_utf8_lossy(&text[..got.bytes]).into_owned(),
            fds,
        ));
    }
}

#[test]
fn descriptors_go_with_the_message_however_many_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let file = File::open("/dev/null").unwrap();
    let text = "FDSTORE=1\nFDNAME=ibtap-ib0\n";
    for (count, sent) in [(0, vec![0]), (2, vec![2]), (100, vec![64, 36])] {
        send(&path, text, &vec![file.as_fd(); count]).unwrap();
        let expected: Vec<_> = sent.into_iter().map(|n| (text.to_owned(), n)).collect();
        assert_eq!(received(&manager), expected);
    }
    assert!(send(&directory.path().join("none"), text, &[]).is_err());
}

#[test]
fn the_service_managers_socket_may_be_abstract() {
    let name = format!("ibtap-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    send(Path::new(&format!("@{name}")), "FDSTOREREMOVE=1\n", &[]).unwrap();
    assert_eq!(received(&manager), [("FDSTOREREMOVE=1\n".to_owned(), 0)]);
}
