//! A port over a libibumad of the test.

use std::collections::VecDeque;
use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::attributes::{LinkState, PortAttributes};
use super::message::{Buffer, Grh, Received, To};
use super::port::{Agent, AgentId, Umad};
use super::sys::{Library, PortId};
use super::{UmadError, simulated};
use crate::{Gid, Guid, Lid, PKey, QKey, Qpn};

/// What the library was asked for, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Open(String, u8),
    Register(Agent),
    Unregister(u32),
    TakeRequests,
    Close,
}

/// Agent, header with MAD, milliseconds.
type Sent = (u32, Vec<u8>, c_int);

/// A library whose port is one end of a pair of sockets: a datagram there is one MAD.
struct Fake {
    ends: (UnixDatagram, UnixDatagram),
    simulated: bool,
    /// Errno of the next calls to open and to register.
    open: Mutex<c_int>,
    register: Mutex<c_int>,
    calls: Mutex<Vec<Call>>,
    /// Headers and MADs that the port received: those that wait.
    incoming: Mutex<VecDeque<(u32, Vec<u8>)>>,
    sent: Mutex<Vec<Sent>>,
    failing: Mutex<c_int>,
}

impl Fake {
    fn new(simulated: bool) -> Arc<Fake> {
        let ends = UnixDatagram::pair().unwrap();
        ends.0.set_nonblocking(true).unwrap();
        Arc::new(Fake {
            ends,
            simulated,
            open: Mutex::default(),
            register: Mutex::default(),
            calls: Mutex::default(),
            incoming: Mutex::default(),
            sent: Mutex::default(),
            failing: Mutex::default(),
        })
    }

    fn call(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    /// A received MAD for an agent, with the change of its header.
    fn arrive(&self, agent: u32, mad: &[u8], change: impl FnOnce(&mut super::message::Header)) {
        let mut buffer = Buffer::with(&To::gsi(Lid(9), 3), mad);
        change(buffer.parts_mut().0);
        let (header, _) = buffer.parts();
        let mut bytes = zerocopy::IntoBytes::as_bytes(header).to_vec();
        bytes.extend_from_slice(mad);
        self.incoming.lock().unwrap().push_back((agent, bytes));
        self.ends.1.send(&[0]).unwrap();
    }

    fn fail(&self, errno: c_int) {
        *self.failing.lock().unwrap() = errno;
        self.ends.1.send(&[0]).unwrap();
    }
}

fn errno(number: c_int) -> io::Result<()> {
    match number {
        0 => Ok(()),
        n => Err(io::Error::from_raw_os_error(n)),
    }
}

impl Library for Fake {
    fn init(&self) -> io::Result<()> {
        Ok(())
    }

    fn devices(&self) -> Vec<String> {
        vec!["ib0".to_owned(), "ib1".to_owned()]
    }

    fn open_port(&self, device: &CStr, port: u8) -> io::Result<PortId> {
        errno(*self.open.lock().unwrap())?;
        self.call(Call::Open(device.to_str().unwrap().to_owned(), port));
        Ok(PortId(self.ends.0.as_raw_fd()))
    }

    fn close_port(&self, _: PortId) {
        self.call(Call::Close);
    }

    fn descriptor(&self, id: PortId) -> Option<RawFd> {
        (!self.simulated).then_some(id.0)
    }

    fn take_requests(&self, _: PortId) -> io::Result<()> {
        assert!(self.simulated, "the port would become a subnet manager");
        self.call(Call::TakeRequests);
        Ok(())
    }

    fn port(&self, _: &CStr, _: u8) -> io::Result<PortAttributes> {
        Ok(PortAttributes {
            lid: Lid(1),
            lmc: 0,
            sm_lid: Lid(2),
            sm_sl: 0,
            state: LinkState::Down,
            gid_prefix: [0xfe; 8],
            guid: Guid([1; 8]),
            rate: 10,
            capability_mask: 0,
            infiniband: true,
            pkeys: vec![PKey::new(0); 3],
        })
    }

    fn register(
        &self,
        _: PortId,
        class: u8,
        class_version: u8,
        rmpp_version: u8,
        methods: u128,
    ) -> io::Result<u32> {
        errno(*self.register.lock().unwrap())?;
        let mut calls = self.calls.lock().unwrap();
        calls.push(Call::Register(Agent {
            class,
            class_version,
            rmpp_version,
            methods,
        }));
        let agents = calls.iter().filter(|c| matches!(c, Call::Register(_)));
        Ok(u32::try_from(agents.count()).unwrap() - 1)
    }

    fn unregister(&self, _: PortId, agent: u32) {
        self.call(Call::Unregister(agent));
    }

    fn send(
        &self,
        _: PortId,
        agent: u32,
        buffer: &mut Buffer,
        timeout_ms: c_int,
    ) -> io::Result<()> {
        let (header, mad) = buffer.parts();
        let mut bytes = zerocopy::IntoBytes::as_bytes(header).to_vec();
        bytes.extend_from_slice(mad);
        if self.simulated && mad[1] == simulated::CLASS {
            // What ibsim answers: the request's header, then the attribute.
            let mut answer = mad.to_vec();
            answer[3] = 0x81;
            if mad[17] == 0x15 {
                answer[64 + 16..64 + 20].copy_from_slice(&[0, 7, 0, 8]);
                answer[64 + 32] = 0x14;
                answer[64 + 34] = 0x41;
                answer[64 + 36] = 0x25;
            } else {
                answer[64..68].copy_from_slice(&[0xff, 0xff, 0x80, 0x01]);
            }
            self.arrive(agent, &answer, |_| {});
        }
        let mut sent = self.sent.lock().unwrap();
        sent.push((agent, bytes, timeout_ms));
        Ok(())
    }

    fn receive(
        &self,
        _: PortId,
        buffer: &mut Buffer,
        timeout_ms: c_int,
    ) -> Result<(u32, usize), (io::Error, usize)> {
        if self.simulated {
            std::thread::sleep(Duration::from_millis(
                u64::try_from(timeout_ms).unwrap().min(1),
            ));
        }
        errno(*self.failing.lock().unwrap()).map_err(|e| (e, 0))?;
        let mut incoming = self.incoming.lock().unwrap();
        let Some((agent, bytes)) = incoming.pop_front() else {
            let _ = self.ends.0.recv(&mut [0]);
            return Err((io::Error::from_raw_os_error(libc::EAGAIN), 0));
        };
        let needed = bytes.len() - 64;
        if needed > buffer.mad_length() {
            incoming.push_front((agent, bytes));
            return Err((io::Error::from_raw_os_error(libc::ENOSPC), needed));
        }
        let (header, mad) = buffer.parts_mut();
        zerocopy::IntoBytes::as_mut_bytes(header).copy_from_slice(&bytes[..64]);
        mad[..needed].copy_from_slice(&bytes[64..]);
        Ok((agent, needed))
    }
}

fn open(fake: &Arc<Fake>) -> Umad {
    Umad::open_with(fake.clone(), "ib1", 2).unwrap()
}

/// Waits for the eventfd, then takes what is there.
fn next(umad: &Umad) -> Result<Option<Received>, UmadError> {
    let mut fds = [PollFd::from_borrowed_fd(umad.event_fd(), PollFlags::IN)];
    let long = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    assert_eq!(poll(&mut fds, Some(&long)).unwrap(), 1, "nothing arrived");
    umad.receive()
}

fn is_readable(umad: &Umad) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(umad.event_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

fn mad(method: u8) -> Vec<u8> {
    let mut mad = vec![0; 256];
    mad[..4].copy_from_slice(&[1, 3, 2, method]);
    mad[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    mad
}

#[test]
fn agents_end_before_their_port() {
    let fake = Fake::new(false);
    let umad = open(&fake);
    let sa = umad.register(Agent::SA).unwrap();
    let reports = umad.register(Agent::REPORTS).unwrap();
    umad.register(Agent::CM).unwrap();
    umad.unregister(reports);
    umad.unregister(reports);
    drop(umad);
    assert_eq!(
        *fake.calls.lock().unwrap(),
        [
            Call::Open("ib1".to_owned(), 2),
            Call::Register(Agent::SA),
            Call::Register(Agent::REPORTS),
            Call::Register(Agent::CM),
            Call::Unregister(reports.0),
            Call::Unregister(sa.0),
            Call::Unregister(2),
            Call::Close,
        ]
    );
}

#[test]
fn a_simulated_port_stays_open() {
    let fake = Fake::new(true);
    let umad = open(&fake);
    assert!(umad.is_simulated());
    let sa = umad.register(Agent::SA).unwrap();
    assert!(!fake.calls.lock().unwrap().contains(&Call::TakeRequests));
    umad.register(Agent::REPORTS).unwrap();
    assert_eq!(
        fake.calls.lock().unwrap().last(),
        Some(&Call::TakeRequests),
        "after the registration"
    );
    // A subnet manager asks the port, which ibsim takes for one.
    let mut question = mad(0x01);
    question[1] = simulated::CLASS;
    question[17] = 0x20;
    fake.arrive(0, &question, |_| {});
    fake.arrive(sa.0, &mad(0x06), |_| {});
    assert_eq!(next(&umad).unwrap().unwrap().agent, sa);
    let (_, answer, timeout) = fake.sent.lock().unwrap().remove(0);
    assert_eq!((answer[67], answer[68], timeout), (0x81, 0x80, 0));
    assert_eq!(answer[64 + 8..64 + 16], question[8..16]);
    assert_eq!(answer[64 + 64..64 + 72], [1; 8], "the port GUID");
    assert_eq!(answer[64 + 84], 0, "not active");
    umad.unregister(sa);
    drop(umad);
    let calls = fake.calls.lock().unwrap();
    assert!(
        !calls
            .iter()
            .any(|c| matches!(c, Call::Unregister(_) | Call::Close))
    );
}

#[test]
fn a_sent_mad_has_its_address_and_256_bytes() {
    let fake = Fake::new(false);
    let umad = open(&fake);
    let agent = umad.register(Agent::SA).unwrap();
    let to = To {
        dlid: Lid(0x1234),
        sl: 5,
        path_bits: 1,
        qpn: Qpn::GSI,
        qkey: QKey::GSI,
        pkey_index: 2,
        grh: Some(Grh {
            gid: Gid([0xab; 16]),
            gid_index: 3,
            traffic_class: 4,
            flow_label: 0x12345,
            hop_limit: 6,
        }),
    };
    umad.send(agent, &to, &[7; 30], Duration::from_millis(1500))
        .unwrap();
    let sent = fake.sent.lock().unwrap();
    let (number, bytes, timeout) = &sent[0];
    assert_eq!((*number, *timeout), (agent.0, 1500));
    assert_eq!(bytes.len(), 64 + 256);
    let mut expected = vec![0, 0, 0, 1, 0x80, 1, 0, 0, 0x12, 0x34, 5, 1, 1, 3, 6, 4];
    expected.extend([0xab; 16]);
    expected.extend([0, 1, 0x23, 0x45]);
    expected.extend(2u16.to_ne_bytes());
    assert_eq!(bytes[20..58], expected);
    assert_eq!(bytes[64..94], [7; 30]);
    assert!(bytes[94..].iter().all(|&b| b == 0));
}

#[test]
fn received_mads_have_their_source_and_the_lower_half_of_their_id() {
    let fake = Fake::new(false);
    let umad = open(&fake);
    fake.arrive(4, &mad(0x81), |header| {
        header.grh_present = 1;
        header.gid = [0xcd; 16];
        header.flow_label = 0xabcde.into();
    });
    let received = next(&umad).unwrap().unwrap();
    assert_eq!(received.agent, AgentId(4));
    assert_eq!((received.status, received.slid), (0, Lid(9)));
    assert_eq!((received.sqpn, received.sl), (Qpn::GSI, 3));
    let grh = received.grh.unwrap();
    assert_eq!((grh.gid, grh.flow_label), (Gid([0xcd; 16]), 0xabcde));
    assert_eq!(received.mad[8..16], [0, 0, 0, 0, 5, 6, 7, 8]);
    assert_eq!(received.mad.len(), 256);
    assert_eq!(received.reply_to().grh, Some(grh));

    // A Report is a request: its answer needs the whole id.
    fake.arrive(4, &mad(0x06), |_| {});
    let report = next(&umad).unwrap().unwrap();
    assert_eq!(report.mad, mad(0x06));
    assert_eq!(report.grh, None);

    // A request without an answer returns with its common header.
    fake.arrive(4, &mad(0x01)[..24], |header| {
        header.status = 110u32.to_ne_bytes();
    });
    let returned = next(&umad).unwrap().unwrap();
    assert_eq!((returned.status, returned.mad.len()), (110, 24));
    assert_eq!(returned.mad[8..16], [0, 0, 0, 0, 5, 6, 7, 8]);
    assert!(umad.receive().unwrap().is_none());
    assert!(!is_readable(&umad));
}

#[test]
fn tables_arrive_whole_between_small_mads() {
    let fake = Fake::new(false);
    let umad = open(&fake);
    let table: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8 & 0x7f).collect();
    fake.arrive(0, &mad(0x06), |_| {});
    fake.arrive(0, &table, |_| {});
    fake.arrive(0, &mad(0x06), |_| {});
    assert_eq!(next(&umad).unwrap().unwrap().mad.len(), 256);
    assert_eq!(next(&umad).unwrap().unwrap().mad, table);
    assert_eq!(next(&umad).unwrap().unwrap().mad.len(), 256);
}

#[test]
fn the_queue_is_bounded_and_counts_what_it_drops() {
    let fake = Fake::new(true);
    let umad = open(&fake);
    for _ in 0..1030 {
        let mut buffer = Buffer::with(&To::gsi(Lid(1), 0), &mad(0x06));
        let bytes = [
            zerocopy::IntoBytes::as_bytes(buffer.parts_mut().0),
            &mad(0x06)[..],
        ]
        .concat();
        fake.incoming.lock().unwrap().push_back((9, bytes));
    }
    while umad.dropped() < 6 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut taken = 0;
    while umad.receive().unwrap().is_some() {
        taken += 1;
    }
    assert_eq!((taken, umad.dropped()), (1024, 6));
}

#[test]
fn a_removed_device_is_reported_once_after_the_mads() {
    let fake = Fake::new(false);
    let umad = open(&fake);
    fake.arrive(0, &mad(0x06), |_| {});
    assert!(next(&umad).unwrap().is_some());
    fake.fail(libc::EIO);
    let error = next(&umad).unwrap_err();
    assert!(matches!(error, UmadError::Ended { .. }), "{error}");
    assert!(error.to_string().starts_with("ib1/2 receives no"));
    assert!(umad.receive().unwrap().is_none());
    assert!(!is_readable(&umad));
}

#[test]
fn attributes_of_a_simulated_port_come_from_the_port() {
    let fake = Fake::new(true);
    let umad = open(&fake);
    let seen = umad.attributes().unwrap();
    assert_eq!((seen.lid, seen.sm_lid), (Lid(7), Lid(8)));
    assert_eq!((seen.lmc, seen.sm_sl), (1, 5));
    assert_eq!(seen.state, LinkState::Active);
    assert_eq!(seen.pkeys, [0xffff, 0x8001, 0].map(PKey::new));
    assert!(umad.receive().unwrap().is_none(), "not for the owner");

    let fake = Fake::new(false);
    let seen = open(&fake).attributes().unwrap();
    assert_eq!((seen.lid, seen.state), (Lid(1), LinkState::Down));
    assert!(fake.sent.lock().unwrap().is_empty());
}

#[test]
fn the_first_gid_has_the_prefix_and_the_guid() {
    let seen = Fake::new(false).port(c"ib1", 1).unwrap();
    assert_eq!(
        seen.gid().to_string(),
        "fefe:fefe:fefe:fefe:101:101:101:101"
    );
}

#[test]
fn each_fault_has_its_sentence() {
    let fake = Fake::new(false);
    let opening = |device: &str, port, errno| {
        *fake.open.lock().unwrap() = errno;
        let error = Umad::open_with(fake.clone(), device, port).unwrap_err();
        error.to_string()
    };
    for (device, port, errno, words) in [
        ("ib7", 1, libc::ENODEV, "the kernel has ib0, ib1"),
        ("ib0", 9, libc::ENODEV, "ib0/9 has no management datagrams"),
        ("ib0", 0, 0, "ib0/0 has no management datagrams"),
        ("a/b", 1, 0, "no RDMA device a/b"),
        ("", 1, 0, "no RDMA device"),
        ("ib0", 1, libc::EACCES, "run the program as root"),
        ("ib0", 1, libc::ENOENT, "udev makes the node"),
    ] {
        let sentence = opening(device, port, errno);
        assert!(sentence.contains(words), "{sentence}");
    }
    *fake.open.lock().unwrap() = 0;
    let umad = open(&fake);
    *fake.register.lock().unwrap() = libc::EINVAL;
    let held = |agent| umad.register(agent).unwrap_err().to_string();
    assert!(held(Agent::REPORTS).contains("one program of a port receives Reports"));
    let cm = held(Agent::CM);
    assert!(cm.contains("refuses an agent of class 7"), "{cm}");
    assert!(held(Agent::SA).contains("Invalid argument"));
    *fake.register.lock().unwrap() = libc::ENOMEM;
    assert!(held(Agent::CM).contains("class 7: Cannot allocate memory"));
}
