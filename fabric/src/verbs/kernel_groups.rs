//! Groups beside an interface of the kernel's IPoIB on the same port.
//!
//! The subnet administrator has one membership for each port and group (IBA vol. 1, 15.2.5.17). The kernel
//! counts the members among its own users and those of rdma_cm's port space RDMA_PS_IPOIB (kernel
//! drivers/infiniband/core/multicast.c), and leaves a group with its last one. So a port with an interface
//! of the kernel joins groups by rdma_cm, in the partition of that interface.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::{Gid, Instant, PKey};

use super::ibv::cm::{CmAddress, CmEventKind, CmId, EventChannel, IbAddress, PortSpace};
use super::sys::Library;

/// The pause before lost groups are requested again after an error. The port calls once a second.
const PAUSE: Duration = Duration::from_millis(500);

/// An interface of the kernel's IPoIB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelInterface {
    /// Its name.
    pub name: String,
    /// The partition, with bit 15 set.
    pub pkey: PKey,
}

/// The interfaces of the kernel's IPoIB with this GID, in the current network namespace: of type 32
/// (ARPHRD_INFINIBAND), with a 20-byte address that ends in the GID, and a broadcast address with the P_Key
/// in bytes 8 and 9 (RFC 4391, sections 4 and 9.1.1).
pub fn interfaces(gid: Gid) -> Vec<KernelInterface> {
    let found = fs::read_dir("/sys/class/net").into_iter().flatten();
    let of_gid = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let pkey = pkey_of(&entry.path(), gid)?;
        Some(KernelInterface { name, pkey })
    };
    found.flatten().filter_map(of_gid).collect()
}

fn pkey_of(dir: &Path, gid: Gid) -> Option<PKey> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    if read("type")?.trim() != "32" {
        return None;
    }
    let address = parse(read("address")?.trim())?;
    let broadcast = parse(read("broadcast")?.trim())?;
    let pkey = u16::from_be_bytes([broadcast[8], broadcast[9]]);
    (address[4..] == gid.0).then(|| PKey::new(pkey).full())
}

/// 20 bytes in hexadecimal with colons.
fn parse(text: &str) -> Option<[u8; 20]> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    bytes.collect::<Result<Vec<u8>, _>>().ok()?.try_into().ok()
}

/// Memberships in one partition.
#[derive(Debug)]
pub struct KernelGroups {
    channel: Arc<EventChannel>,
    id: CmId,
    pkey: PKey,
    next: usize,
    /// The groups, with the context of their joins.
    joins: BTreeMap<Gid, usize>,
    /// The groups that the kernel has lost, and has not joined again yet.
    lost: BTreeSet<Gid>,
    /// When the lost groups are requested again.
    again: Instant,
}

impl KernelGroups {
    /// For the partition of an interface of the kernel with this address.
    ///
    /// # Errors
    /// Errors of rdma_create_event_channel(3), rdma_create_id(3) and rdma_bind_addr(3); NotFound if the
    /// address is on another device than `device`.
    pub fn open(
        library: &Arc<dyn Library>,
        device: &str,
        address: IpAddr,
        pkey: PKey,
    ) -> io::Result<KernelGroups> {
        let groups = KernelGroups::over(library, pkey)?;
        groups.id.bind(CmAddress::Ip((address, 0).into()))?;
        if groups.id.device().is_none_or(|(name, _)| name != device) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(groups)
    }

    /// Without an address.
    ///
    /// # Errors
    /// Errors of rdma_create_event_channel(3) and rdma_create_id(3).
    pub(super) fn over(library: &Arc<dyn Library>, pkey: PKey) -> io::Result<KernelGroups> {
        let channel = EventChannel::new(library, PortSpace::Ipoib)?;
        let id = CmId::new(&channel)?;
        Ok(KernelGroups {
            channel,
            id,
            pkey,
            next: 1,
            joins: BTreeMap::new(),
            lost: BTreeSet::new(),
            again: Instant(0),
        })
    }

    /// Readable when [`KernelGroups::take`] has answers.
    ///
    /// # Errors
    /// As [`EventChannel::fd`].
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.channel.fd()
    }

    fn group(&self, mgid: Gid) -> IbAddress {
        IbAddress {
            gid: mgid,
            pkey: self.pkey,
            service: None,
        }
    }

    /// Requests a group, again if it was requested before.
    ///
    /// # Errors
    /// Errors of rdma_join_multicast(3).
    pub fn join(&mut self, mgid: Gid) -> io::Result<()> {
        self.leave(mgid);
        self.request(mgid)
    }

    fn request(&mut self, mgid: Gid) -> io::Result<()> {
        let context = self.next;
        self.next += 1;
        let joined = self.id.join_multicast(self.group(mgid), context);
        joined.map_err(|e| match e.kind() {
            // The kernel takes the parameters of the broadcast group, which its interface joins again after a
            // reregistration (drivers/infiniband/core/multicast.c, ib_sa_get_mcmember_rec).
            kind @ io::ErrorKind::AddrNotAvailable => {
                let why = "the kernel's IPoIB interface is not in its broadcast group";
                io::Error::new(kind, why)
            }
            _ => e,
        })?;
        self.joins.insert(mgid, context);
        Ok(())
    }

    /// Leaves a group; does nothing if it was not requested.
    pub fn leave(&mut self, mgid: Gid) {
        self.lost.remove(&mgid);
        self.release(mgid);
    }

    fn release(&mut self, mgid: Gid) {
        if self.joins.remove(&mgid).is_some()
            && let Err(e) = self.id.leave_multicast(self.group(mgid))
        {
            log::debug!("cannot leave {mgid} by rdma_cm: {e}");
        }
    }

    /// The answers that have arrived: each group with the error of its join, if there is one. Groups that the
    /// kernel has lost are requested again until the kernel has joined them, and have an answer then. Their members
    /// stay attached: the port has requested the groups from the subnet administrator, too, which may refuse them.
    ///
    /// # Errors
    /// Errors of rdma_get_cm_event(3).
    pub fn take(&mut self, now: Instant) -> io::Result<Vec<(Gid, Option<io::Error>)>> {
        let mut answers = Vec::new();
        while let Some(event) = self.channel.next_event()? {
            let mut joins = self.joins.iter();
            let Some(mgid) = joins.find(|(_, of)| **of == event.context).map(|(g, _)| *g) else {
                continue;
            };
            match event.kind {
                CmEventKind::MulticastJoin => {
                    self.lost.remove(&mgid);
                    answers.push((mgid, None));
                }
                CmEventKind::MulticastError => {
                    let error = io::Error::from_raw_os_error(event.status.wrapping_neg());
                    // After a reregistration or with another LID, the kernel ends its memberships
                    // (drivers/infiniband/core/multicast.c, process_group_error). This is no refusal.
                    let is_loss = error.raw_os_error() == Some(libc::ENETRESET);
                    if is_loss {
                        self.lost.insert(mgid);
                    } else if self.lost.contains(&mgid) {
                        self.pause(now, mgid, &error);
                    } else {
                        answers.push((mgid, Some(error)));
                        continue;
                    }
                    self.release(mgid);
                }
                _ => {}
            }
        }
        if now >= self.again {
            self.request_lost(now);
        }
        Ok(answers)
    }

    fn request_lost(&mut self, now: Instant) {
        let lost = self.lost.iter().copied();
        let lost = lost.filter(|mgid| !self.joins.contains_key(mgid));
        for mgid in lost.collect::<Vec<_>>() {
            if let Err(e) = self.request(mgid) {
                self.pause(now, mgid, &e);
                if e.kind() == io::ErrorKind::AddrNotAvailable {
                    // The same for all groups.
                    return;
                }
            }
        }
    }

    fn pause(&mut self, now: Instant, mgid: Gid, why: &io::Error) {
        log::debug!("rdma_cm cannot join {mgid} again yet: {why}");
        self.again = now.after(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_of_the_kernel_has_the_gid_in_its_address() {
        let dir = std::env::temp_dir().join(format!("ibtap-kernel-groups-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let address = "80:00:00:4a:fe:80:00:00:00:00:00:00:00:02:c9:03:00:e7:7e:12\n";
        let broadcast = "00:ff:ff:ff:ff:12:40:1b:80:01:00:00:00:00:00:00:ff:ff:ff:ff\n";
        for (name, text) in [
            ("type", "32\n"),
            ("address", address),
            ("broadcast", broadcast),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        let gid: Gid = "fe80::2:c903:e7:7e12".parse().unwrap();
        assert_eq!(pkey_of(&dir, gid), Some(PKey::new(0x8001)));
        assert_eq!(pkey_of(&dir, "fe80::1".parse().unwrap()), None);
        for (name, text) in [("address", "02:00:00:00:00:01\n"), ("type", "1\n")] {
            fs::write(dir.join(name), text).unwrap();
            assert_eq!(pkey_of(&dir, gid), None);
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
