"""A VLAN link for kernels without 802.1Q: vlan_link.py LOWER NAME VID

Creates the TAP NAME with LOWER's MAC. Frames that the host sends on the TAP leave on LOWER with the
tag; frames with the tag on LOWER arrive on the TAP. Large sends stay whole. The TAP is removed at the end.
"""

import fcntl
import os
import select
import socket
import struct
import sys

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
# Checksums, TSO over IPv4 and IPv6.
OFFLOADS = 1 | 2 | 4
SIOCSIFHWADDR, ARPHRD_ETHER = 0x8924, 1
SOL_PACKET, PACKET_AUXDATA, PACKET_VNET_HDR, PACKET_OUTGOING = 263, 8, 15, 4
TP_STATUS_VLAN_VALID = 1 << 4
ETH_P_ALL = 3
FRAME_MAX = 10 + 18 + 65536


def open_tap(name, lower):
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(tap, TUNSETOFFLOAD, OFFLOADS)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as asking:
        asking.bind((lower, 0))
        mac = asking.getsockname()[4]
        wish = struct.pack("=16sH14s", name.encode(), ARPHRD_ETHER, mac)
        fcntl.ioctl(asking, SIOCSIFHWADDR, wish)
    return tap


def open_lower(lower):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    link.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    link.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    link.bind((lower, ETH_P_ALL))
    link.setblocking(False)
    return link


def tagged(frame, vid):
    """Adds a tag to a frame with a virtio-net header of ten bytes, and adjusts the offsets."""
    flags, kind, headers, size, start, offset = struct.unpack_from("<BBHHHH", frame)
    if flags & 1:
        start += 4
    if headers:
        headers += 4
    header = struct.pack("<BBHHHH", flags, kind, headers, size, start, offset)
    return header + frame[10:22] + struct.pack(">HH", 0x8100, vid) + frame[22:]


def vlan_of(ancillary):
    """The VLAN id that the kernel removed from a frame."""
    for level, kind, data in ancillary:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            status, _, _, _, _, control, _ = struct.unpack("=IIIHHHH", data)
            if status & TP_STATUS_VLAN_VALID:
                return control & 0xFFF
    return None


def up(tap, link, vid):
    frame = os.read(tap, FRAME_MAX)
    try:
        link.send(tagged(frame, vid))
    except OSError:
        # A full queue, or LOWER is down: the network loses frames in these ways.
        pass


def down(tap, link, vid):
    frame, ancillary, _, address = link.recvmsg(FRAME_MAX, 256)
    if address[2] != PACKET_OUTGOING and vlan_of(ancillary) == vid:
        try:
            os.write(tap, frame)
        except OSError:
            # LOWER is down.
            pass


def main():
    lower, name, vid = sys.argv[1], sys.argv[2], int(sys.argv[3])
    link = open_lower(lower)
    tap = open_tap(name, lower)
    while True:
        ready, _, _ = select.select([tap, link], [], [])
        for source, move in ((tap, up), (link, down)):
            if source in ready:
                try:
                    while True:
                        move(tap, link, vid)
                except OSError:
                    # No more frames, or LOWER went down.
                    pass


main()
