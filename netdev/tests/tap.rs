//! Real TAPs, each test in its own network namespace.

#[path = "../../rtnl/tests/namespace/mod.rs"]
mod namespace;

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use namespace::{close, in_namespace, run};
use netdev::tap::{
    Holder, READ_MAX, Tap, TapError, TapOptions, TapQueue, VNET_HEADER_LEN, interface_of, is_down,
    is_gone,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Uid;
use rustix::thread::{CapabilitySet, UnshareFlags, set_thread_res_uid};

const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn options(queues: usize, persist: bool) -> TapOptions {
    TapOptions {
        name: "ib0".to_owned(),
        queues,
        persist,
    }
}

/// An interface with carrier and 192.0.2.1, which is up and has the neighbour 192.0.2.2.
fn configured(queues: usize) -> (Tap, Vec<TapQueue>) {
    let opened = Tap::open(&options(queues, false)).unwrap();
    opened.0.set_carrier(true).unwrap();
    run("ip link set ib0 address 02:00:00:00:00:01");
    run("ip link set ib0 up");
    run("ip addr add 192.0.2.1/24 dev ib0");
    run("ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev ib0");
    opened
}

/// The first frame from any queue that `wanted` accepts, within five seconds.
fn read_until(queues: &[TapQueue], wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut buffer = vec![0; READ_MAX];
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        for queue in queues {
            while let Some(length) = queue.read(&mut buffer).unwrap() {
                if wanted(&buffer[..length]) {
                    return buffer[..length].to_vec();
                }
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "the frame never came");
        let mut fds: Vec<_> = queues
            .iter()
            .map(|q| PollFd::new(q, PollFlags::IN))
            .collect();
        poll(&mut fds, Some(&Timespec::try_from(left).unwrap())).unwrap();
    }
}

fn ethernet(ethertype: u16) -> Vec<u8> {
    [&HOST_MAC[..], &PEER_MAC, &ethertype.to_be_bytes()].concat()
}

#[test]
fn two_queues_carry_frames_both_ways() {
    in_namespace(|| {
        let (tap, queues) = configured(2);
        assert_eq!(queues.len(), 2);
        assert!(!tap.existed());
        assert_eq!(tap.name().unwrap(), "ib0");
        let shown = run("ip -d link show ib0");
        assert!(
            shown.contains("multi_queue") && shown.contains("vnet_hdr on"),
            "{shown}"
        );
        assert!(shown.contains("persist off"), "{shown}");

        // Who has 192.0.2.1? Tell 192.0.2.2.
        let mut request = ethernet(0x0806);
        request.extend([0, 1, 8, 0, 6, 4, 0, 1]);
        request.extend(PEER_MAC);
        request.extend([192, 0, 2, 2]);
        request.extend([0; 6]);
        request.extend([192, 0, 2, 1]);
        let header = [0; VNET_HEADER_LEN];
        for queue in &queues {
            let parts = [&header[..], &request[..14], &request[14..]].map(IoSlice::new);
            queue.write_vectored(&parts).unwrap();
            let reply = read_until(&queues, |frame| frame[24..26] == [8, 6] && frame[33] == 2);
            assert_eq!(reply[34..40], HOST_MAC);
            assert_eq!(reply[40..44], [192, 0, 2, 1]);
        }
    });
}

/// The virtio-net header's gso_type and gso_size.
fn gso(frame: &[u8]) -> (u8, u16) {
    (frame[1], u16::from_le_bytes([frame[4], frame[5]]))
}

#[test]
fn a_segmented_udp_send_is_one_frame() {
    in_namespace(|| {
        let (tap, queues) = configured(1);
        if !tap.offloads().uso {
            return kit::skip("this kernel (before 6.2) has no USO");
        }
        let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        let segment: libc::c_int = 1000;
        // SAFETY: no safe wrapper supports UDP_SEGMENT; the kernel reads one int, which outlives the call.
        let set = unsafe {
            libc::setsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&socket),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const segment).cast(),
                size_of_val(&segment) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        socket.send_to(&[7; 13500], "192.0.2.2:9").unwrap();
        let is_udp = |frame: &[u8]| frame[24..26] == [8, 0] && frame[35] == 17;
        let frame = read_until(&queues, is_udp);
        assert_eq!(frame.len(), VNET_HEADER_LEN + 14 + 20 + 8 + 13500);
        assert_eq!(gso(&frame), (5, 1000));
        // The frame has a partial checksum.
        assert_eq!(frame[0] & 1, 1);
    });
}

/// A TCP segment from 192.0.2.2 port 9 with its virtio-net header.
fn tcp_segment(port: u16, seq: u32, ack: u32, flags: u8, tcp_options: &[u8]) -> Vec<u8> {
    let length = 40 + tcp_options.len();
    let mut ip = vec![0x45, 0, 0, length as u8, 0, 0, 0x40, 0, 64, 6, 0, 0];
    ip.extend([192, 0, 2, 2, 192, 0, 2, 1]);
    let sum: u32 = ip
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    // VIRTIO_NET_HDR_F_NEEDS_CSUM: the TCP checksum is not complete, so the host does not verify it. (A TAP
    // ignores VIRTIO_NET_HDR_F_DATA_VALID.)
    let mut frame = vec![1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0];
    frame.extend(ethernet(0x0800));
    frame.extend(ip);
    frame.extend(9u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend(seq.to_be_bytes());
    frame.extend(ack.to_be_bytes());
    frame.extend([
        (((20 + tcp_options.len()) / 4) << 4) as u8,
        flags,
        0xff,
        0xff,
    ]);
    frame.extend([0; 4]);
    frame.extend(tcp_options);
    frame
}

#[test]
fn a_large_tcp_send_is_one_frame() {
    in_namespace(|| {
        let (_tap, queues) = configured(1);
        let listener = std::net::TcpListener::bind("192.0.2.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let write = |frame: Vec<u8>| queues[0].write_vectored(&[IoSlice::new(&frame)]).unwrap();
        let is_tcp = |frame: &[u8]| frame[24..26] == [8, 0] && frame[35] == 6;
        // SYN with an MSS of 1000 and a window scale of 7; SYN-ACK; ACK.
        write(tcp_segment(port, 100, 0, 2, &[2, 4, 3, 232, 3, 3, 7, 1]));
        let answer = read_until(&queues, is_tcp);
        assert_eq!(answer[59], 0x12);
        let seq = u32::from_be_bytes(answer[50..54].try_into().unwrap());
        write(tcp_segment(port, 101, seq.wrapping_add(1), 0x10, &[]));
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, &[7; 8000]).unwrap();
        let frame = read_until(&queues, |frame| is_tcp(frame) && frame.len() > 100);
        assert_eq!(gso(&frame), (1, 1000));
        // The congestion window determines the number of segments.
        let payload = frame.len() - (VNET_HEADER_LEN + 14 + 40);
        assert!(payload >= 2000 && payload.is_multiple_of(1000), "{payload}");
    });
}

/// The answer to each of many flows comes from the queue on which the flow arrived: one thread may write all
/// flows without moving all of them to its own queue.
#[test]
fn flows_written_by_one_thread_stay_spread_over_the_queues() {
    in_namespace(|| {
        let (_tap, queues) = configured(2);
        let answered = |writer: &TapQueue, port: u16| {
            // SYN to a closed port; RST.
            let frame = tcp_segment(port, 100, 0, 2, &[]);
            writer.write_vectored(&[IoSlice::new(&frame)]).unwrap();
            let is_answer = |frame: &[u8]| {
                frame.len() > 48 && frame[35] == 6 && frame[46..48] == port.to_be_bytes()
            };
            let mut buffer = vec![0; READ_MAX];
            let deadline = Instant::now() + Duration::from_secs(5);
            while Instant::now() < deadline {
                for (at, queue) in queues.iter().enumerate() {
                    while let Some(length) = queue.read(&mut buffer).unwrap() {
                        if is_answer(&buffer[..length]) {
                            return at;
                        }
                    }
                }
            }
            panic!("no answer from port {port}");
        };
        let count = |writer: &TapQueue, ports: std::ops::Range<u16>| {
            let mut counts = [0; 2];
            for port in ports {
                // The kernel learns the queue of a flow after it has handled the frame.
                answered(writer, port);
                let at = answered(writer, port);
                assert_eq!(answered(writer, port), at, "a flow keeps its queue");
                counts[at] += 1;
            }
            counts
        };
        assert_eq!(count(&queues[0].share(), 100..132), [32, 0]);
        let [one, other] = count(&queues[0].share_by_flow(&queues), 200..232);
        assert!(one >= 4 && other >= 4, "{one} and {other}");
    });
}

#[test]
fn the_carrier_is_seen() {
    in_namespace(|| {
        let (tap, _queues) = configured(1);
        for (carrier, shown) in [(false, "NO-CARRIER"), (true, "LOWER_UP")] {
            tap.set_carrier(carrier).unwrap();
            assert!(run("ip link show ib0").contains(shown));
        }
    });
}

fn exists() -> bool {
    run("ip -br link")
        .lines()
        .any(|line| line.starts_with("ib0 "))
}

#[test]
fn an_ordinary_tap_goes_with_its_last_holder() {
    in_namespace(|| {
        let (tap, queues) = Tap::open(&options(2, false)).unwrap();
        close(tap);
        assert!(exists());
        close(queues);
        assert!(!exists());
    });
}

#[test]
fn a_persistent_tap_is_left_and_adopted() {
    in_namespace(|| {
        close(Tap::open(&options(2, true)).unwrap());
        assert!(exists());
        let (tap, queues) = Tap::open(&options(2, false)).unwrap();
        assert!(tap.existed());
        close((tap, queues));
        assert!(exists(), "adopting does not end its persistence");
        let opened = Tap::open(&options(1, false)).unwrap();
        assert_eq!(opened.1.len(), 1);
        opened.0.set_persist(false).unwrap();
        close(opened);
        assert!(!exists());
    });
}

#[test]
fn an_adopted_tap_keeps_its_queue_mode() {
    in_namespace(|| {
        run("ip tuntap add dev ib0 mode tap");
        let (tap, queues) = Tap::open(&options(4, false)).unwrap();
        assert!(tap.existed());
        assert_eq!(queues.len(), 1);
        close((tap, queues));
        run("ip link del ib0");
        run("ip tuntap add dev ib0 mode tap multi_queue");
        for count in [1, 4] {
            let (tap, queues) = Tap::open(&options(count, false)).unwrap();
            assert_eq!(queues.len(), count);
            close((tap, queues));
        }
    });
}

/// Copies of a TAP's descriptors, as a service manager keeps them.
fn kept(tap: &Tap) -> Vec<OwnedFd> {
    let copies = tap.descriptors().map(|fd| fd.try_clone_to_owned());
    copies.collect::<Result<_, _>>().unwrap()
}

#[test]
fn kept_queues_carry_on_with_the_interface_as_it_was() {
    in_namespace(|| {
        let (tap, queues) = configured(2);
        let (index, fds) = (tap.ifindex(), kept(&tap));
        close((tap, queues));
        assert!(
            exists(),
            "it is not persistent, and somebody has its queues"
        );
        run("ip link set ib0 down");
        run("ip link set ib0 name ib7");
        run("ip link set ib7 up");
        run("ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev ib7");
        assert_eq!(interface_of(&fds[1]).unwrap(), "ib7");

        let (tap, queues) = Tap::from_fds(fds, 2, false).unwrap();
        assert!(tap.existed());
        assert_eq!((tap.ifindex(), queues.len()), (index, 2));
        assert!(run("ip addr show dev ib7").contains("192.0.2.1/24"));
        let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        socket.send_to(b"x", "192.0.2.2:9").unwrap();
        read_until(&queues, |frame| {
            frame[VNET_HEADER_LEN..].starts_with(&PEER_MAC)
        });
        close((tap, queues));
        assert!(!run("ip -o link").contains("ib7"));
    });
}

#[test]
fn kept_queues_without_a_reader_are_detached() {
    in_namespace(|| {
        let (tap, queues) = configured(3);
        let fds = kept(&tap);
        let still_kept = kept(&tap);
        close((tap, queues));
        let (tap, queues) = Tap::from_fds(fds, 1, false).unwrap();
        assert_eq!((queues.len(), tap.descriptors().count()), (1, 1));
        let link = rtnl::Requests::new().unwrap().link_by_name("ib0").unwrap();
        let tun = link.tun.unwrap();
        assert_eq!((tun.queues, tun.disabled_queues), (1, 2));
        close(still_kept);
        let link = rtnl::Requests::new().unwrap().link_by_name("ib0").unwrap();
        assert_eq!(link.tun.unwrap().disabled_queues, 0);
    });
}

#[test]
fn kept_queues_are_no_use_when_another_holds_some_or_the_interface_is_not_here() {
    in_namespace(|| {
        let (tap, _queues) = configured(2);
        let mut fds = kept(&tap);
        fds.pop();
        let error = Tap::from_fds(fds, 2, false).unwrap_err();
        assert!(error.is_held(), "{error}");
        let fds = kept(&tap);
        let elsewhere = std::thread::spawn(|| {
            // SAFETY: as in `in_namespace`.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            Tap::from_fds(fds, 2, false).unwrap_err()
        });
        let error = elsewhere.join().unwrap();
        assert!(matches!(error, TapError::Elsewhere { .. }), "{error}");
        run("ip link del ib0");
        assert!(is_gone(&interface_of(kept(&tap).remove(0)).unwrap_err()));
        assert!(Tap::from_fds(kept(&tap), 2, false).is_err());
        assert!(Tap::from_fds(Vec::new(), 2, false).is_err());
    });
}

#[test]
fn the_holder_is_named() {
    in_namespace(|| {
        // A second process could open a multi-queue TAP.
        for queues in [1, 2] {
            let name = format!("held{}x{queues}", std::process::id() % 100_000);
            let options = TapOptions {
                name: name.clone(),
                queues,
                persist: false,
            };
            let _held = Tap::open(&options).unwrap();
            let error = Tap::open(&options).unwrap_err();
            assert!(error.is_held(), "{error}");
            let TapError::Held {
                holder: Holder::Process { pid, .. },
                ..
            } = &error
            else {
                panic!("{error}");
            };
            assert_eq!(*pid, std::process::id());
            assert!(
                error
                    .to_string()
                    .contains(&format!("{name} is in use by process {pid} ("))
            );
        }
    });
}

/// The kernel does not report the holder of a TAP with a single queue before it is opened.
#[test]
fn a_tap_that_its_holder_releases_just_now_is_held_or_made_anew() {
    in_namespace(|| {
        for round in 0..200 {
            let held = Tap::open(&options(1, false)).unwrap();
            let started = Barrier::new(2);
            let opened = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let held = held;
                    started.wait();
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_micros(round) {}
                    close(held);
                });
                started.wait();
                Tap::open(&options(1, false))
            });
            match opened {
                Ok(opened) => close(opened),
                Err(e) => assert!(e.is_held(), "in round {round}: {e}"),
            }
        }
    });
}

#[test]
fn a_name_that_cannot_be_a_tap_is_refused() {
    in_namespace(|| {
        for (make, kind) in [
            ("ip link add ib0 type veth peer name p0", "veth"),
            ("ip tuntap add dev ib0 mode tun", "layer 3"),
        ] {
            run(make);
            let error = Tap::open(&options(1, false)).unwrap_err();
            assert!(matches!(error, TapError::NameTaken { .. }), "{error}");
            assert!(error.to_string().contains(kind), "{error}");
            run("ip link del ib0");
        }
        for name in ["", "sixteen-bytes-xx", "ib%d", "a b"] {
            let options = TapOptions {
                name: name.to_owned(),
                ..options(1, false)
            };
            let error = Tap::open(&options).unwrap_err();
            assert!(matches!(error, TapError::Name { .. }), "{error}");
        }
        for queues in [0, 257] {
            let error = Tap::open(&options(queues, false)).unwrap_err();
            assert!(matches!(error, TapError::Queues(_)), "{error}");
        }
        assert!(!exists());
    });
}

/// Opens a queue of the TAP `ib0`, which has several, without any of [`Tap`]'s settings.
fn open_queue() -> std::io::Result<OwnedFd> {
    attach(device()?)
}

fn device() -> std::io::Result<OwnedFd> {
    let mut options = std::fs::File::options();
    let opened = options.read(true).write(true).open("/dev/net/tun");
    opened.map(OwnedFd::from)
}

/// The same as a user without any rights. Everybody may open the device node on most hosts.
fn open_queue_as_nobody() -> std::io::Result<OwnedFd> {
    let opening = std::thread::spawn(|| {
        let device = device()?;
        // With the user, the kernel takes the capabilities away.
        set_thread_res_uid(None, Uid::from_raw(65534), None)?;
        attach(device)
    });
    opening.join().unwrap()
}

fn attach(device: OwnedFd) -> std::io::Result<OwnedFd> {
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;
    // `struct ifreq`: the name in 16 bytes, then the flags.
    let mut request = [0u8; size_of::<libc::ifreq>()];
    request[..3].copy_from_slice(b"ib0");
    request[16..18].copy_from_slice(&(flags as u16).to_ne_bytes());
    control(&device, libc::TUNSETIFF, request.as_mut_ptr() as usize)?;
    Ok(device)
}

/// An ioctl; `argument` is a number, or the address of a `struct ifreq` that outlives the call.
fn control(device: &OwnedFd, what: libc::Ioctl, argument: usize) -> std::io::Result<()> {
    // SAFETY: no safe wrapper exists; the kernel reads and writes one `struct ifreq`, or takes the number.
    match unsafe { libc::ioctl(device.as_raw_fd(), what, argument) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn assert_refused(opened: std::io::Result<OwnedFd>, when: &str) {
    let error = opened.expect_err(when);
    assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{when}: {error}");
}

#[test]
fn a_local_user_cannot_open_a_queue_of_an_interface() {
    in_namespace(|| {
        let (tap, queues) = configured(2);
        assert_refused(open_queue_as_nobody(), "a new interface");
        let fds = kept(&tap);
        close((tap, queues));
        assert_refused(open_queue_as_nobody(), "kept queues");
        close(fds);
        close(Tap::open(&options(2, true)).unwrap());
        assert_refused(open_queue_as_nobody(), "a left interface");
    });
}

/// Interfaces of `ip tuntap` and of older daemons have no owner. One with another owner may have got the owner from
/// any user who opened it before.
#[test]
fn a_local_user_cannot_open_a_queue_of_an_adopted_interface() {
    in_namespace(|| {
        for owner in ["", "user 65534"] {
            run(&format!(
                "ip tuntap add dev ib0 mode tap multi_queue {owner}"
            ));
            close(open_queue_as_nobody().expect("nothing prevents it yet"));
            let opened = Tap::open(&options(2, false)).unwrap();
            assert_refused(open_queue_as_nobody(), "an adopted interface");
            close(opened);
            run("ip link del ib0");

            run(&format!(
                "ip tuntap add dev ib0 mode tap multi_queue {owner}"
            ));
            let fds = vec![open_queue().unwrap()];
            close(open_queue_as_nobody().expect("nothing prevents it yet"));
            let opened = Tap::from_fds(fds, 1, false).unwrap();
            assert_refused(open_queue_as_nobody(), "kept queues");
            close(opened);
            run("ip link del ib0");
        }
    });
}

/// A user who has a queue may make himself the owner again and close the queue. Then the owner tells.
#[test]
fn a_local_user_who_was_faster_is_found() {
    in_namespace(|| {
        let mut requests = rtnl::Requests::new().unwrap();
        let mut found = 0;
        for round in (0..300).step_by(5) {
            run("ip tuntap add dev ib0 mode tap multi_queue");
            let (ours, theirs) = (open_queue().unwrap(), open_queue().unwrap());
            let started = Barrier::new(2);
            let opened = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let theirs = theirs;
                    started.wait();
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_micros(round) {
                        control(&theirs, libc::TUNSETOWNER, 65534).unwrap();
                    }
                });
                started.wait();
                Tap::from_fds(vec![ours], 1, false)
            });
            match opened {
                Ok(_) => {
                    let tun = requests.link_by_name("ib0").unwrap().tun.unwrap();
                    assert_eq!(tun.owner, Some(0), "in round {round}");
                }
                Err(e) => {
                    assert!(e.is_held(), "{e}");
                    found += 1;
                }
            }
            run("ip link del ib0");
        }
        assert!(found > 0, "no user was faster");
    });
}

#[test]
fn without_cap_net_admin_the_error_names_it() {
    in_namespace(|| {
        let mut capabilities = rustix::thread::capabilities(None).unwrap();
        capabilities.effective.remove(CapabilitySet::NET_ADMIN);
        rustix::thread::set_capabilities(None, capabilities).unwrap();
        let error = Tap::open(&options(1, false)).unwrap_err();
        assert!(matches!(error, TapError::Permission(_)), "{error}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    });
}

#[test]
fn without_the_driver_the_error_names_it() {
    in_namespace(|| {
        // SAFETY: as in `in_namespace`; the thread gets its own file system view, which nothing else uses.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        run("mount --make-rprivate /");
        run("mount -t tmpfs none /dev/net");
        let error = Tap::open(&options(1, false)).unwrap_err();
        assert!(matches!(error, TapError::NoDevice), "{error}");
        assert!(error.to_string().contains("modprobe tun"), "{error}");
    });
}

#[test]
fn a_down_interface_and_a_deleted_one_differ() {
    in_namespace(|| {
        let (tap, queues) = Tap::open(&options(2, false)).unwrap();
        let frame = [&[0; VNET_HEADER_LEN][..], &ethernet(0x0800), &[0; 46]].concat();
        let down = queues[0]
            .write_vectored(&[IoSlice::new(&frame)])
            .unwrap_err();
        assert!(is_down(&down) && !is_gone(&down), "{down}");
        assert_eq!(queues[0].read(&mut [0; 100]).unwrap(), None);

        run("ip link set ib0 up");
        run("ip link del ib0");
        let mut fds = [PollFd::new(&queues[1], PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        assert!(fds[0].revents().contains(PollFlags::ERR));
        for queue in &queues {
            let gone = queue.read(&mut [0; 100]).unwrap_err();
            assert!(is_gone(&gone) && !is_down(&gone), "{gone}");
            assert!(is_gone(
                &queue.write_vectored(&[IoSlice::new(&frame)]).unwrap_err()
            ));
        }
        assert!(is_gone(&tap.name().unwrap_err()));
        assert!(is_gone(&tap.set_carrier(true).unwrap_err()));
    });
}

#[test]
fn a_detached_queue_is_passed_over() {
    in_namespace(|| {
        let (tap, queues) = configured(2);
        let mut requests = rtnl::Requests::new().unwrap();
        let mut counts = || {
            let tun = requests.link_by_index(tap.ifindex()).unwrap().tun.unwrap();
            (tun.queues, tun.disabled_queues)
        };
        assert_eq!(counts(), (2, 0));
        queues[0].detach().unwrap();
        assert_eq!(counts(), (1, 1));
        assert_eq!(tap.name().unwrap(), "ib0");
        // All flows now use the other queue.
        let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        for port in 1000..1016 {
            socket.send_to(b"x", ("192.0.2.2", port)).unwrap();
            let port: u16 = port;
            read_until(&queues[1..], |f| {
                f.len() > 52 && f[48..50] == port.to_be_bytes()
            });
        }
        queues[0].attach().unwrap();
        assert_eq!(counts(), (2, 0));
    });
}

#[test]
fn a_renamed_tap_knows_its_name() {
    in_namespace(|| {
        let (tap, _queues) = Tap::open(&options(1, false)).unwrap();
        run("ip link set ib0 name storage0");
        assert_eq!(tap.name().unwrap(), "storage0");
    });
}
