//! Changes of a device, and the port's reaction. These tests change the device's interface and remove
//! the device. They run only if IBTAP_TEST_MAY_REMOVE is set, as in a virtual machine, and only with an
//! rdma_rxe device.

use std::fs;
use std::process::Command;

use fabric::{Gid, Port, PortEvent, PortState, Qpn, Room};

use crate::device::{self, Device};
use crate::node::{Node, PATIENCE};

pub fn run(command: &str) {
    let status = Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(status.success(), "{command}");
}

/// The device and its interface.
pub fn find() -> Option<(Device, String)> {
    if std::env::var_os("IBTAP_TEST_MAY_REMOVE").is_none() {
        kit::skip("IBTAP_TEST_MAY_REMOVE is not set");
        return None;
    }
    let d = device::find()?;
    let parent = format!("/sys/class/infiniband/{}/parent", d.name);
    match fs::read_to_string(parent) {
        Ok(netdev) => Some((d, netdev.trim().to_owned())),
        Err(_) => {
            kit::skip(format_args!("{} is no rdma_rxe", d.name));
            None
        }
    }
}

fn exchange(a: &mut Node, b: &mut Node) {
    let (from, to) = (a.endpoint(), b.endpoint());
    let ah = a.ah(b.gid());
    a.send(&from, ah, to.qpn, &[b"hello".to_vec()]);
    assert_eq!(b.receive(1)[0].1, b"hello");
    a.worker.destroy_ah(ah);
    a.port.destroy_ud(from.id).unwrap();
    b.port.destroy_ud(to.id).unwrap();
}

#[test]
fn the_interface_goes_down_and_up_and_changes_its_mtu() {
    let Some((d, netdev)) = find() else {
        return;
    };
    let (mut a, mut b) = (
        Node::open(&d.library, &d.name),
        Node::open(&d.library, &d.name),
    );
    exchange(&mut a, &mut b);
    run(&format!("ip link set {netdev} down"));
    for node in [&mut a, &mut b] {
        node.wait_event("Down", |e| matches!(e, PortEvent::Down(_)));
        assert_eq!(node.port.attributes().state, PortState::Down);
        assert!(node.port.attributes().state_reason.is_some());
    }
    run(&format!("ip link set {netdev} up"));
    for node in [&mut a, &mut b] {
        node.wait_event("Active", |e| matches!(e, PortEvent::Active));
    }
    exchange(&mut a, &mut b);

    // An MTU below 1280 would remove the interface's IPv6 addresses.
    let before = a.port.attributes().ud_payload_max;
    let (larger, mtu) = match before {
        4096 => (2048, 2200),
        _ => (4096, 4300),
    };
    let old = fs::read_to_string(format!("/sys/class/net/{netdev}/mtu")).unwrap();
    run(&format!("ip link set {netdev} mtu {mtu}"));
    a.wait_event("MtuChange", |e| *e == PortEvent::MtuChange(larger));
    run(&format!("ip link set {netdev} mtu {old}"));
    a.wait_event("MtuChange", |e| *e == PortEvent::MtuChange(before));
}

#[test]
fn the_gid_follows_the_addresses_of_the_interface() {
    let Some((d, netdev)) = find() else {
        return;
    };
    let (mut a, mut b) = (
        Node::open(&d.library, &d.name),
        Node::open(&d.library, &d.name),
    );
    let old = a.gid();
    let (from, to) = (a.endpoint(), b.endpoint());
    let ah = a.ah(old);
    let new: Gid = "2001:db8:77::1".parse().unwrap();
    run(&format!("ip -6 addr add {new}/64 dev {netdev} nodad"));
    run(&format!("ip -6 addr del {old}/64 dev {netdev}"));
    for node in [&mut a, &mut b] {
        node.wait_event("GidChange", |e| *e == PortEvent::GidChange(new));
    }
    let ah_new = a.ah(new);
    a.send(&from, ah_new, to.qpn, &[b"from another".to_vec()]);
    assert_eq!(b.receive(1)[0].0.src_gid, new);
    // An address that stays is not replaced by a better one.
    run(&format!("ip -6 addr add {old}/64 dev {netdev} nodad"));
    for _ in 0..5 {
        a.round(std::time::Duration::from_millis(100));
        assert_eq!(a.port.process(), []);
    }
    run(&format!("ip -6 addr del {new}/64 dev {netdev}"));
    for node in [&mut a, &mut b] {
        node.wait_event("GidChange", |e| *e == PortEvent::GidChange(old));
    }
    a.send(&from, ah, to.qpn, &[b"as before".to_vec()]);
    assert_eq!(b.receive(1)[0].0.src_gid, old);
}

#[test]
fn a_device_that_is_removed_and_comes_back_is_taken_up_again() {
    let Some((d, netdev)) = find() else {
        return;
    };
    let (mut a, mut b) = (
        Node::open(&d.library, &d.name),
        Node::open(&d.library, &d.name),
    );
    let (from, to) = (a.endpoint(), b.endpoint());
    let mgid: Gid = "ff12:401b:ffff::77".parse().unwrap();
    b.join(to.id, mgid);
    let ah = a.ah(b.gid());
    a.send(&from, ah, to.qpn, &[b"before".to_vec()]);
    assert_eq!(b.receive(1)[0].1, b"before");

    // The removal waits until nobody has the device open, so it must not block this thread.
    let mut removal = Command::new("rdma")
        .args(["link", "del", &d.name])
        .spawn()
        .unwrap();
    for node in [&mut a, &mut b] {
        node.wait_event("Removed", |e| matches!(e, PortEvent::Removed));
        assert_eq!(node.port.attributes().state, PortState::Down);
    }
    // Sends meanwhile are dropped without errors.
    assert!(a.worker.train(10).is_none() && a.worker.room() != Room::Nothing);
    a.round(std::time::Duration::ZERO);
    assert!(removal.wait().unwrap().success());
    assert!(
        a.port
            .create_ud(fabric::UdInit {
                pkey: fabric::PKey::DEFAULT,
                qkey: crate::node::QKEY,
                qpn: None,
            })
            .is_err()
    );
    run(&format!(
        "rdma link add {} type rxe netdev {netdev}",
        d.name
    ));
    for node in [&mut a, &mut b] {
        let events = node.wait_event("Active", |e| matches!(e, PortEvent::Active));
        assert!(
            events
                .iter()
                .any(|e| matches!(e, PortEvent::QpnChange(ids) if ids.len() == 1)),
            "{events:?}"
        );
    }
    // The same endpoints with other queue pairs, and the same handle.
    let qpn = b.port.endpoint_qpn(to.id).unwrap();
    a.send(&from, ah, qpn, &[b"after".to_vec()]);
    let (r, payload) = b.receive_one(PATIENCE).expect("it works again");
    assert_eq!(payload, b"after");
    assert_eq!(r.src_qpn, a.port.endpoint_qpn(from.id).unwrap());
    let group = a.ah(mgid);
    a.send(&from, group, Qpn::MULTICAST, &[b"all".to_vec()]);
    let (r, _) = b.receive_one(PATIENCE).expect("groups are attached again");
    assert_eq!(r.dst_gid, mgid);
}
