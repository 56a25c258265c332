//! What a neighbour costs in memory, maps and spare capacity included: counted by the allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use fabric::{AddressHandle, Gid, PKey, Qpn};
use ipoib::{Config, HardwareAddress, Ipoib, Limits, Meta, Outgoing, Time, peer_mac};

/// The system's allocator, with a count of the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: needed because only the global allocator sees every allocation. Every call is handed to the
// system's allocator unchanged; the count beside it never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MAC: [u8; 6] = [6, 0, 0, 0, 0, 1];
const NEIGHBOURS: u32 = 10_000;

fn peer(n: u32) -> HardwareAddress {
    let gid = Gid::from(Ipv6Addr::from((0xfe80_u128 << 112) | u128::from(n + 100)));
    HardwareAddress::new(0, Qpn::new(n + 2), gid)
}

#[test]
fn a_neighbour_costs_under_a_quarter_of_a_kibibyte_in_each_replica() {
    let local = HardwareAddress::new(0, Qpn::new(0x4a), "fe80::1".parse().unwrap());
    let before = IN_USE.load(Ordering::Relaxed);
    let mut core = Ipoib::new(Config {
        local,
        mac: MAC,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: 2044,
        mode: ipoib::Mode::Datagram,
        dhcp: ipoib::DhcpMode::default(),
        limits: Limits {
            neighbours: NEIGHBOURS as usize,
            // The room for groups is reserved, however many neighbours there are.
            groups: 64,
            ..Limits::default()
        },
    });
    for n in 0..NEIGHBOURS {
        let a = peer(n);
        let ip = (0x0a00_0000 + n).to_be_bytes();
        let head = [8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
        let arp = [&head[..], &a.0, &ip, &[0; 20], &[10, 0, 0, 1]].concat();
        let meta = Meta {
            src_qpn: a.qpn(),
            src_gid: a.gid(),
            dst_gid: local.gid(),
            multicast: false,
        };
        core.from_fabric(Time(0), &meta, &arp);
        core.drain_updates().for_each(drop);
        let frame = [&peer_mac(&a)[..], &MAC, &[8, 0, 0x45, 0, 0, 20], &[0; 16]].concat();
        let Outgoing::Forward { to, .. } = core.from_tap(Time(0), &[0; 12], &frame) else {
            panic!("{a} is known");
        };
        core.set_ah(to, AddressHandle(n));
    }
    assert_eq!(core.neighbours().count(), NEIGHBOURS as usize);
    let bytes = IN_USE.load(Ordering::Relaxed) - before;
    let each = bytes / NEIGHBOURS as usize;
    println!("{each} bytes for each of {NEIGHBOURS} neighbours");
    assert!(each < 256, "{each} bytes");
}
