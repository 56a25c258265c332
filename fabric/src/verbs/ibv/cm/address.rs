//! Socket addresses in librdmacm's form.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use proto::{Gid, PKey, ServiceId};

/// The address family of [`sockaddr_ib`] (include/linux/socket.h).
const AF_IB: u16 = 27;

/// An InfiniBand address: a service at a port. In network byte order except family and scope.
/// (`struct sockaddr_ib` of include/rdma/ib.h, and of rdma-core's infiniband/ib.h.)
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name is the C structure's")]
struct sockaddr_ib {
    sib_family: u16,
    sib_pkey: u16,
    sib_flowinfo: u32,
    sib_addr: [u8; 16],
    sib_sid: u64,
    sib_sid_mask: u64,
    sib_scope_id: u64,
}

const _: () = assert!(size_of::<sockaddr_ib>() == 48);

/// A service at an InfiniBand port, or its end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IbAddress {
    /// The port's GID.
    pub gid: Gid,
    /// The partition.
    pub pkey: PKey,
    /// The service; `None`: chosen by the kernel.
    pub service: Option<ServiceId>,
}

/// An address of rdma_cm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmAddress {
    /// IP address and port number, in the port space RDMA_PS_TCP.
    Ip(SocketAddr),
    /// GID and service id, in the port space RDMA_PS_IB.
    Ib(IbAddress),
}

/// An address as C structures.
#[derive(Clone, Copy)]
pub(super) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
    ib: sockaddr_ib,
}

impl RawAddress {
    pub(super) fn new(address: CmAddress) -> RawAddress {
        match address {
            CmAddress::Ip(address) => RawAddress::of_ip(address),
            CmAddress::Ib(a) => RawAddress {
                ib: sockaddr_ib {
                    sib_family: AF_IB,
                    sib_pkey: a.pkey.get().to_be(),
                    sib_flowinfo: 0,
                    sib_addr: a.gid.0,
                    sib_sid: a.service.map_or(0, |s| s.0.to_be()),
                    // The service itself, or any.
                    sib_sid_mask: a.service.map_or(0, |_| u64::MAX),
                    sib_scope_id: 0,
                },
            },
        }
    }

    fn of_ip(address: SocketAddr) -> RawAddress {
        match address {
            SocketAddr::V4(a) => RawAddress {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: a.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(a.ip().octets()),
                    },
                    sin_zero: [0; 8],
                },
            },
            SocketAddr::V6(a) => RawAddress {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: a.ip().octets(),
                    },
                    sin6_scope_id: a.scope_id(),
                },
            },
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        ptr::from_mut(self).cast()
    }
}

/// Reads the address at `at`; `None` for families other than IPv4 and IPv6.
///
/// # Safety
/// `at` points to a `sockaddr_storage`.
pub(super) unsafe fn read(at: *const libc::sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: the caller guarantees the memory, which is larger and more strictly aligned than the
    // structures read; every bit pattern is valid for them.
    unsafe {
        match libc::c_int::from(ptr::addr_of!((*at).ss_family).read()) {
            libc::AF_INET => {
                let a = at.cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(a.sin_port)).into())
            }
            libc::AF_INET6 => {
                let a = at.cast::<libc::sockaddr_in6>().read();
                let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
                let port = u16::from_be(a.sin6_port);
                Some(SocketAddrV6::new(ip, port, a.sin6_flowinfo, a.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["192.0.2.1:4755", "[fe80::1%7]:4755", "[::]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            // SAFETY: the structure consists of integers.
            let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
            let mut raw = RawAddress::new(CmAddress::Ip(address));
            // SAFETY: the storage is larger than the address copied into it, and then holds an address.
            let back = unsafe {
                ptr::copy_nonoverlapping(
                    raw.as_mut_ptr().cast::<u8>(),
                    ptr::from_mut(&mut storage).cast(),
                    size_of::<RawAddress>(),
                );
                read(&storage)
            };
            assert_eq!(back, Some(address));
        }
    }

    /// The bytes that the kernel takes: fields of struct sockaddr_ib in network order.
    #[test]
    fn an_infiniband_address_is_laid_out_as_in_the_kernel() {
        let bytes = |service| {
            let address = IbAddress {
                gid: Gid([
                    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x99, 0, 0xff, 0xfe, 0, 0, 0x10,
                ]),
                pkey: PKey::new(0x8001),
                service,
            };
            let raw = RawAddress::new(CmAddress::Ib(address));
            // SAFETY: the variant was just written; it has no padding.
            let bytes: [u8; 48] = unsafe { std::mem::transmute(raw.ib) };
            bytes
        };
        let linux = bytes(Some(ServiceId(0x1000_0000_0000_0012)));
        assert_eq!(linux[..2], 27u16.to_ne_bytes());
        assert_eq!(linux[2..8], [0x80, 0x01, 0, 0, 0, 0]);
        assert_eq!(linux[8..16], [0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
        assert_eq!(linux[16..24], [0, 0x99, 0, 0xff, 0xfe, 0, 0, 0x10]);
        assert_eq!(linux[24..32], [0x10, 0, 0, 0, 0, 0, 0, 0x12]);
        assert_eq!(linux[32..40], [0xff; 8]);
        assert_eq!(linux[40..], [0; 8]);
        assert_eq!(bytes(None)[24..], [0; 24]);
    }
}
