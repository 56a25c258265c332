//! A port whose datagrams a test answers, for tests of programs with a [`Umad`].

use std::collections::VecDeque;
use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::message::{Buffer, HEADER, MAD, To};
use super::sys::{Library, PortId};
use super::{LinkState, PortAttributes, Umad, UmadError};
use crate::{Gid, Lid, PKey};

/// The answers to a sent datagram.
type Answer = Box<dyn FnMut(&[u8; MAD]) -> Vec<[u8; MAD]> + Send>;

/// An active port of an InfiniBand subnet, whose subnet manager has LID 1.
pub fn active(gid: Gid) -> PortAttributes {
    PortAttributes {
        lid: Lid(0x10),
        lmc: 0,
        sm_lid: Lid(1),
        sm_sl: 0,
        state: LinkState::Active,
        gid_prefix: *gid.0.first_chunk().unwrap(),
        guid: proto::Guid(*gid.0.last_chunk().unwrap()),
        rate: 10,
        capability_mask: 0,
        infiniband: true,
        pkeys: vec![PKey::DEFAULT],
    }
}

/// See the module.
pub struct Fake {
    /// One byte in the first announces one datagram.
    ends: (UnixDatagram, UnixDatagram),
    attributes: Mutex<PortAttributes>,
    answer: Mutex<Answer>,
    incoming: Mutex<VecDeque<(u32, [u8; MAD])>>,
    removed: AtomicBool,
}

impl Fake {
    pub fn new(
        attributes: PortAttributes,
        answer: impl FnMut(&[u8; MAD]) -> Vec<[u8; MAD]> + Send + 'static,
    ) -> Arc<Fake> {
        Arc::new(Fake {
            ends: UnixDatagram::pair().unwrap(),
            attributes: Mutex::new(attributes),
            answer: Mutex::new(Box::new(answer)),
            incoming: Mutex::default(),
            removed: AtomicBool::new(false),
        })
    }

    /// Changes the attributes of the port.
    pub fn change(&self, change: impl FnOnce(&mut PortAttributes)) {
        change(&mut self.attributes.lock().unwrap());
    }

    /// Removes the device.
    pub fn remove(&self) {
        self.removed.store(true, Ordering::Relaxed);
        self.ends.1.send(&[0]).unwrap();
    }

    /// The device is back.
    pub fn bring_back(&self) {
        self.removed.store(false, Ordering::Relaxed);
    }

    fn check(&self) -> io::Result<()> {
        match self.removed.load(Ordering::Relaxed) {
            true => Err(Errno::NODEV.into()),
            false => Ok(()),
        }
    }

    pub fn open(self: &Arc<Fake>) -> Result<Umad, UmadError> {
        Umad::open_with(self.clone(), "ib0", 1)
    }
}

impl Library for Fake {
    fn init(&self) -> io::Result<()> {
        Ok(())
    }

    fn devices(&self) -> Vec<String> {
        vec!["ib0".to_owned()]
    }

    fn open_port(&self, _: &CStr, _: u8) -> io::Result<PortId> {
        self.check()?;
        Ok(PortId(self.ends.0.as_raw_fd()))
    }

    fn close_port(&self, _: PortId) {}

    fn descriptor(&self, id: PortId) -> Option<RawFd> {
        Some(id.0)
    }

    fn take_requests(&self, _: PortId) -> io::Result<()> {
        Ok(())
    }

    fn port(&self, _: &CStr, _: u8) -> io::Result<PortAttributes> {
        self.check()?;
        Ok(self.attributes.lock().unwrap().clone())
    }

    fn register(&self, _: PortId, class: u8, _: u8, _: u8, _: u128) -> io::Result<u32> {
        Ok(class.into())
    }

    fn unregister(&self, _: PortId, _: u32) {}

    fn send(&self, _: PortId, agent: u32, buffer: &mut Buffer, _: c_int) -> io::Result<()> {
        let (_, mad) = buffer.parts();
        let answers = (self.answer.lock().unwrap())(mad.first_chunk().unwrap());
        for answer in answers {
            self.incoming.lock().unwrap().push_back((agent, answer));
            self.ends.1.send(&[0]).unwrap();
        }
        Ok(())
    }

    fn receive(
        &self,
        _: PortId,
        buffer: &mut Buffer,
        _: c_int,
    ) -> Result<(u32, usize), (io::Error, usize)> {
        self.ends.0.recv(&mut [0]).unwrap();
        self.check().map_err(|e| (e, 0))?;
        let (agent, mad) = self.incoming.lock().unwrap().pop_front().unwrap();
        let from = Buffer::with(&To::gsi(Lid(1), 0), &mad);
        let (header, place) = buffer.parts_mut();
        header
            .as_mut_bytes()
            .copy_from_slice(&from.parts().0.as_bytes()[..HEADER]);
        place[..MAD].copy_from_slice(&mad);
        Ok((agent, MAD))
    }
}
