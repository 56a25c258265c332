//! The ioctls of TUN/TAP devices and ethtool, each as a safe function, and inherited descriptors: the only
//! unsafe code of the Linux side. Numbers and argument types are those of kernel
//! include/uapi/linux/if_tun.h and drivers/net/tun.c (`__tun_chr_ioctl`), and of
//! include/uapi/linux/ethtool.h and net/ethtool/ioctl.c (`dev_ethtool`).

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io;
use rustix::ioctl::{IntegerSetter, Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl};
use rustix::process::Uid;

const SET_IFF: Opcode = libc::TUNSETIFF as Opcode;
const GET_IFF: Opcode = libc::TUNGETIFF as Opcode;
const SET_QUEUE: Opcode = libc::TUNSETQUEUE as Opcode;
const SET_PERSIST: Opcode = libc::TUNSETPERSIST as Opcode;
const SET_OWNER: Opcode = libc::TUNSETOWNER as Opcode;
const SET_OFFLOAD: Opcode = libc::TUNSETOFFLOAD as Opcode;
const SET_HEADER_SIZE: Opcode = libc::TUNSETVNETHDRSZ as Opcode;
const SET_HEADER_LITTLE_ENDIAN: Opcode = libc::TUNSETVNETLE as Opcode;
const SET_SEND_BUFFER: Opcode = libc::TUNSETSNDBUF as Opcode;
const SET_CARRIER: Opcode = libc::TUNSETCARRIER as Opcode;
const GET_NAMESPACE: Opcode = libc::TUNGETDEVNETNS as Opcode;
const ETHTOOL: Opcode = libc::SIOCETHTOOL as Opcode;

/// Bytes of `struct ifreq` after name and flags.
const REST: usize = size_of::<libc::ifreq>() - libc::IFNAMSIZ - size_of::<libc::c_short>();

/// `struct ifreq` (netdevice(7)) with its flags.
#[repr(C)]
struct FlagsRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; REST],
}

const _: () = assert!(size_of::<FlagsRequest>() == size_of::<libc::ifreq>());
const _: () = assert!(offset_of!(FlagsRequest, flags) == offset_of!(libc::ifreq, ifr_ifru));

/// `struct ifreq` with its data pointer, for ethtool's commands.
#[repr(C)]
struct PointerRequest<T> {
    name: [u8; libc::IFNAMSIZ],
    data: *mut T,
    rest: [u8; POINTER_REST],
}

/// Bytes of `struct ifreq` after the name and a pointer.
const POINTER_REST: usize = size_of::<libc::ifreq>() - libc::IFNAMSIZ - size_of::<*mut u8>();

const _: () = assert!(size_of::<PointerRequest<u8>>() == size_of::<libc::ifreq>());
const _: () = assert!(offset_of!(PointerRequest<u8>, data) == offset_of!(libc::ifreq, ifr_ifru));

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// A name with NUL padding; cut to 15 bytes (callers have checked the length).
fn padded(name: &str) -> [u8; libc::IFNAMSIZ] {
    let mut padded = [0; libc::IFNAMSIZ];
    let length = name.len().min(libc::IFNAMSIZ - 1);
    padded[..length].copy_from_slice(&name.as_bytes()[..length]);
    padded
}

fn flags_request(name: &str, flags: i32) -> FlagsRequest {
    FlagsRequest {
        name: padded(name),
        // The flags use all 16 bits; the field is signed.
        flags: flags as libc::c_short,
        rest: [0; REST],
    }
}

/// TUNSETIFF: makes the interface `name` or attaches to it, with IFF_ flags.
pub(crate) fn set_interface(tun: impl AsFd, name: &str, flags: i32) -> io::Result<()> {
    let mut request = flags_request(name, flags);
    // SAFETY: no safe wrapper exists for this ioctl. The kernel reads and writes one `struct ifreq`; the
    // size and field offsets of FlagsRequest are asserted to be the same. Any bit pattern is valid in its
    // integers, and the request outlives the call.
    unsafe { ioctl(tun, Updater::<SET_IFF, FlagsRequest>::new(&mut request)) }
}

/// TUNGETIFF: the interface's present name.
pub(crate) fn interface_name(tun: impl AsFd) -> io::Result<String> {
    let request = interface(tun)?;
    let name = request.name.split(|&b| b == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// TUNGETIFF: whether the interface remains when its last queue is closed.
pub(crate) fn is_persistent(tun: impl AsFd) -> io::Result<bool> {
    Ok(i32::from(interface(tun)?.flags) & libc::IFF_PERSIST != 0)
}

fn interface(tun: impl AsFd) -> io::Result<FlagsRequest> {
    let mut request = flags_request("", 0);
    // SAFETY: as in `set_interface`; the kernel writes one `struct ifreq`.
    unsafe { ioctl(tun, Updater::<GET_IFF, FlagsRequest>::new(&mut request))? };
    Ok(request)
}

/// TUNSETQUEUE with IFF_ATTACH_QUEUE or IFF_DETACH_QUEUE.
pub(crate) fn set_queue(tun: impl AsFd, attached: bool) -> io::Result<()> {
    let flags = if attached {
        libc::IFF_ATTACH_QUEUE
    } else {
        libc::IFF_DETACH_QUEUE
    };
    // SAFETY: as in `set_interface`; the kernel reads one `struct ifreq`.
    unsafe {
        ioctl(
            tun,
            Setter::<SET_QUEUE, FlagsRequest>::new(flags_request("", flags)),
        )
    }
}

/// TUNSETPERSIST: whether the interface remains when its last queue is closed.
pub(crate) fn set_persist(tun: impl AsFd, persist: bool) -> io::Result<()> {
    // SAFETY: no safe wrapper exists; the argument is an integer by value, any value is valid.
    unsafe { ioctl(tun, IntegerSetter::<SET_PERSIST>::new_usize(persist.into())) }
}

/// TUNSETOWNER: the only user, besides those with CAP_NET_ADMIN, who may open queues. EINVAL if the process's user
/// namespace does not have the user.
pub(crate) fn set_owner(tun: impl AsFd, owner: Uid) -> io::Result<()> {
    // SAFETY: no safe wrapper exists; the argument is an integer by value, any value is valid (unknown users
    // give EINVAL).
    unsafe {
        ioctl(
            tun,
            IntegerSetter::<SET_OWNER>::new_usize(owner.as_raw() as usize),
        )
    }
}

/// TUNSETOFFLOAD: the TUN_F_ bits of the supported offloads.
pub(crate) fn set_offload(tun: impl AsFd, features: u32) -> io::Result<()> {
    // SAFETY: no safe wrapper exists; the argument is an integer by value, any value is valid (unknown bits
    // give EINVAL).
    unsafe {
        ioctl(
            tun,
            IntegerSetter::<SET_OFFLOAD>::new_usize(features as usize),
        )
    }
}

/// TUNSETVNETHDRSZ: bytes of the virtio-net header.
pub(crate) fn set_header_size(tun: impl AsFd, bytes: libc::c_int) -> io::Result<()> {
    // SAFETY: no safe wrapper exists; the kernel reads one int, which outlives the call.
    unsafe { ioctl(tun, Setter::<SET_HEADER_SIZE, libc::c_int>::new(bytes)) }
}

/// TUNSETVNETLE: makes the header's fields little-endian on all hosts.
pub(crate) fn set_header_little_endian(tun: impl AsFd) -> io::Result<()> {
    // SAFETY: no safe wrapper exists; the kernel reads one int, which outlives the call.
    unsafe { ioctl(tun, Setter::<SET_HEADER_LITTLE_ENDIAN, libc::c_int>::new(1)) }
}

/// TUNSETSNDBUF: maximum bytes of written frames that the host has not processed.
pub(crate) fn set_send_buffer(tun: impl AsFd, bytes: libc::c_int) -> io::Result<()> {
    // SAFETY: no safe wrapper exists; the kernel reads one int, which outlives the call.
    unsafe { ioctl(tun, Setter::<SET_SEND_BUFFER, libc::c_int>::new(bytes)) }
}

/// TUNSETCARRIER: the carrier, as the host sees it.
pub(crate) fn set_carrier(tun: impl AsFd, carrier: bool) -> io::Result<()> {
    // SAFETY: no safe wrapper exists; the kernel reads one int, which outlives the call.
    unsafe { ioctl(tun, Setter::<SET_CARRIER, libc::c_int>::new(carrier.into())) }
}

/// TUNGETDEVNETNS; the result is a descriptor.
struct NamespaceGetter;

// SAFETY: no safe wrapper exists. The kernel reads and writes no memory for this command. It returns a new
// descriptor of a network namespace without another owner, or a negated error number, which `ioctl` handles
// before `output_from_ptr`.
unsafe impl Ioctl for NamespaceGetter {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GET_NAMESPACE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(answer: IoctlOutput, _: *mut c_void) -> io::Result<OwnedFd> {
        // SAFETY: as above; the result is an open descriptor made by this call.
        Ok(unsafe { OwnedFd::from_raw_fd(answer) })
    }
}

/// TUNGETDEVNETNS: the present network namespace of the interface (since Linux 5.2; EINVAL before, and
/// while the namespace is being deleted).
pub(crate) fn namespace(tun: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the implementation describes the kernel's actions for this command.
    unsafe { ioctl(tun, NamespaceGetter) }
}

/// SIOCETHTOOL with the command at the start of `data`; `socket` is any socket of the interface's network
/// namespace.
///
/// # Safety
/// A `T` must include all memory that the kernel reads and writes for the command.
unsafe fn ethtool<T>(socket: impl AsFd, name: &str, data: &mut T) -> io::Result<()> {
    let mut request = PointerRequest {
        name: padded(name),
        data: &raw mut *data,
        rest: [0; POINTER_REST],
    };
    // SAFETY: no safe wrapper exists. The kernel reads one `struct ifreq` (size and offsets asserted
    // above). Through its pointer it reads and writes `data`, within the limits guaranteed by the caller.
    // Both outlive the call and nothing else refers to them meanwhile.
    unsafe {
        ioctl(
            socket,
            Updater::<ETHTOOL, PointerRequest<_>>::new(&mut request),
        )
    }
}

/// SIOCETHTOOL with a command that returns a number; `socket` is any socket of the interface's network
/// namespace.
pub(crate) fn ethtool_value(socket: impl AsFd, name: &str, command: u32) -> io::Result<u32> {
    let mut value = EthtoolValue { command, data: 0 };
    // SAFETY: the kernel reads and writes one `struct ethtool_value`.
    unsafe { ethtool(socket, name, &mut value)? };
    Ok(value.data)
}

/// `struct ethtool_coalesce`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct EthtoolCoalesce {
    command: u32,
    pub(crate) rx_coalesce_usecs: u32,
    pub(crate) rx_max_coalesced_frames: u32,
    rest: [u32; 20],
}

/// SIOCETHTOOL with ETHTOOL_GCOALESCE; EOPNOTSUPP if the driver has no moderation.
pub(crate) fn ethtool_coalesce(socket: impl AsFd, name: &str) -> io::Result<EthtoolCoalesce> {
    let mut coalesce = EthtoolCoalesce {
        command: ETHTOOL_GCOALESCE,
        ..EthtoolCoalesce::default()
    };
    // SAFETY: the kernel reads the command and writes one `struct ethtool_coalesce`, 23 u32.
    unsafe { ethtool(socket, name, &mut coalesce)? };
    Ok(coalesce)
}

/// `struct ethtool_cmd`.
#[repr(C)]
#[derive(Default)]
struct EthtoolLink {
    command: u32,
    modes: [u32; 2],
    speed_low: u16,
    ports: [u8; 6],
    counts: [u32; 2],
    speed_high: u16,
    crossover: [u8; 2],
    rest: [u32; 3],
}

/// SIOCETHTOOL with ETHTOOL_GSET: the speed in Mb/s, all bits set if unknown; EOPNOTSUPP if the driver has no
/// speed.
pub(crate) fn ethtool_speed(socket: impl AsFd, name: &str) -> io::Result<u32> {
    let mut link = EthtoolLink {
        command: ETHTOOL_GSET,
        ..EthtoolLink::default()
    };
    // SAFETY: the kernel reads the command and writes one `struct ethtool_cmd`, 44 bytes (asserted below).
    unsafe { ethtool(socket, name, &mut link)? };
    Ok(u32::from(link.speed_high) << 16 | u32::from(link.speed_low))
}

const _: () = assert!(size_of::<EthtoolLink>() == 44);

// Commands and the string set of include/uapi/linux/ethtool.h.
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;

/// Maximum number of features; Linux 6.18 has at most 64 (NETDEV_FEATURE_COUNT).
const FEATURES_MAX: usize = 256;

/// Blocks of 32 features.
const FEATURE_BLOCKS: usize = FEATURES_MAX / 32;

/// `struct ethtool_sset_info` for one set.
#[repr(C)]
struct EthtoolSetInfo {
    command: u32,
    reserved: u32,
    mask: u64,
    length: u32,
}

/// `struct ethtool_gstrings` with its strings.
#[repr(C)]
struct EthtoolStrings {
    command: u32,
    set: u32,
    length: u32,
    strings: [[u8; ETH_GSTRING_LEN]; FEATURES_MAX],
}

/// `struct ethtool_gfeatures` with its blocks.
#[repr(C)]
struct EthtoolFeatures {
    command: u32,
    size: u32,
    blocks: [EthtoolFeatureBlock; FEATURE_BLOCKS],
}

/// `struct ethtool_get_features_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct EthtoolFeatureBlock {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
}

/// A feature of an interface.
pub(crate) struct EthtoolFeature {
    /// The name in `ethtool -k`; empty for an unused bit.
    pub(crate) name: String,
    /// Whether the feature can be turned on or off.
    pub(crate) available: bool,
    /// Whether the feature is requested; driver and other features may prevent it.
    pub(crate) requested: bool,
    /// Whether the feature is on.
    pub(crate) active: bool,
}

/// SIOCETHTOOL with ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS and ETHTOOL_GFEATURES: all features of the kernel,
/// in the order of their bits. ENOBUFS if the kernel has more than `FEATURES_MAX`.
pub(crate) fn ethtool_features(socket: impl AsFd, name: &str) -> io::Result<Vec<EthtoolFeature>> {
    let mut info = EthtoolSetInfo {
        command: ETHTOOL_GSSET_INFO,
        reserved: 0,
        mask: 1 << ETH_SS_FEATURES,
        length: 0,
    };
    // SAFETY: the kernel reads the head of a `struct ethtool_sset_info` and writes it back with a u32 for
    // each set bit of the mask; one bit is set.
    unsafe { ethtool(&socket, name, &mut info)? };
    let count = info.length as usize;
    if count > FEATURES_MAX {
        return Err(io::Errno::NOBUFS);
    }
    let mut strings = Box::new(EthtoolStrings {
        command: ETHTOOL_GSTRINGS,
        set: ETH_SS_FEATURES,
        length: 0,
        strings: [[0; ETH_GSTRING_LEN]; FEATURES_MAX],
    });
    // SAFETY: the kernel writes a string of 32 bytes for each of its features. Their number is constant and
    // was checked above.
    unsafe { ethtool(&socket, name, &mut *strings)? };
    let mut features = EthtoolFeatures {
        command: ETHTOOL_GFEATURES,
        size: FEATURE_BLOCKS as u32,
        blocks: [EthtoolFeatureBlock::default(); FEATURE_BLOCKS],
    };
    // SAFETY: the kernel writes at most `size` blocks.
    unsafe { ethtool(&socket, name, &mut features)? };
    let text = |bytes: &[u8]| {
        let name = bytes.split(|&b| b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    };
    let named = strings.strings[..count].iter().enumerate();
    Ok(named
        .map(|(i, name)| {
            let block = features.blocks[i / 32];
            let has = |bits: u32| bits >> (i % 32) & 1 == 1;
            EthtoolFeature {
                name: text(name),
                available: has(block.available),
                requested: has(block.requested),
                active: has(block.active),
            }
        })
        .collect())
}

/// `struct ethtool_sfeatures` with its blocks.
#[repr(C)]
struct EthtoolSetFeatures {
    command: u32,
    size: u32,
    blocks: [EthtoolSetFeaturesBlock; FEATURE_BLOCKS],
}

/// `struct ethtool_set_features_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct EthtoolSetFeaturesBlock {
    valid: u32,
    requested: u32,
}

/// SIOCETHTOOL with ETHTOOL_SFEATURES: turns off the features with these bits, on a kernel with `count`
/// features. ENOBUFS if `count` exceeds `FEATURES_MAX`.
pub(crate) fn ethtool_turn_off(
    socket: impl AsFd,
    name: &str,
    count: usize,
    bits: &[usize],
) -> io::Result<()> {
    if count > FEATURES_MAX || bits.iter().any(|bit| *bit >= count) {
        return Err(io::Errno::NOBUFS);
    }
    let mut features = EthtoolSetFeatures {
        command: ETHTOOL_SFEATURES,
        // The kernel requires its own number of blocks.
        size: count.div_ceil(32) as u32,
        blocks: [EthtoolSetFeaturesBlock::default(); FEATURE_BLOCKS],
    };
    for bit in bits {
        features.blocks[bit / 32].valid |= 1 << (bit % 32);
    }
    // SAFETY: the kernel reads `size` blocks, which fit.
    unsafe { ethtool(socket, name, &mut features) }
}

/// Takes ownership of the descriptors that a service manager opened for this process and named in its
/// environment (sd_listen_fds(3)). Only the first call returns them.
pub(crate) fn own_inherited(
    announced: impl Iterator<Item = (RawFd, String)>,
) -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    announced
        .map(|(fd, name)| {
            // SAFETY: there is no safe way from a number in the environment to a descriptor. The numbers
            // come from `sd_notify::listen_fds_with_names`, which checked that they are open and passed to
            // this process (LISTEN_PID). By that protocol nothing else in the process uses them. Each
            // occurs once and `TAKEN` admits one call, so none gets two owners.
            (name, unsafe { OwnedFd::from_raw_fd(fd) })
        })
        .collect()
}
