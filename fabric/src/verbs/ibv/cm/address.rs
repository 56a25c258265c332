//! Socket addresses as librdmacm takes them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

/// An address in C's form.
#[derive(Clone, Copy)]
pub(super) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(super) fn new(address: SocketAddr) -> RawAddress {
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

/// The address at `at`; `None` for families that are neither IPv4 nor IPv6.
///
/// # Safety
/// `at` points to a `sockaddr_storage`.
pub(super) unsafe fn read(at: *const libc::sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: the caller promises that much memory, which is larger and aligned more strictly than
    // what is read; every bit pattern is a value of these structures.
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
            // SAFETY: the structure is of integers.
            let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
            let mut raw = RawAddress::new(address);
            // SAFETY: the storage is larger than the address, whose bytes are copied; then it holds an
            // address.
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
}
