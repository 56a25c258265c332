"""Management datagrams on the subnet's Ethernet, in both framings of rdma_rxe_ib (see ../README.md). A LID is an int, a
GID or MGID 16 bytes. Fields are big-endian; IBA volume 1, chapters 9 (BTH, DETH, ICRC) and 13 (MAD)."""

import socket
import struct
import zlib

PORT = 4791
PREFIX = bytes.fromhex("fe80000000000000009900fffe00")
UD_SEND_ONLY = 0x64
GSI, GSI_Q_KEY = 1, 0x80010000

# Options that the module socket has no names for: udp(7), ipv6(7) and ip(7) as in the kernel's headers.
UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 101, 102
SO_NO_CHECK, IP_MTU_DISCOVER, IP_PKTINFO, IP_PMTUDISC_DO = 11, 10, 8, 2


def gid_of(lid):
    return PREFIX + struct.pack(">H", lid)


def lid_of(gid):
    """0 if the GID belongs to no port of the subnet."""
    return struct.unpack(">H", gid[14:])[0] if gid[:14] == PREFIX else 0


def text(gid):
    return socket.inet_ntop(socket.AF_INET6, gid)


class Datagram:
    """A received MAD, and where an answer goes."""

    def __init__(self, lid, qpn, pkey, mad):
        self.lid, self.qpn, self.pkey, self.mad = lid, qpn, pkey, mad


class Wire:
    """The port of the subnet administrator."""

    def __init__(self, device, lid, encapsulation):
        self.lid, self.v6 = lid, encapsulation == 6
        self.index = socket.if_nametoindex(device)
        self.psn = 0
        if self.v6:
            self.socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            self.socket.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_TX, 1)
            self.socket.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        else:
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
            # With DF, Linux sends the IP identification 0, which the ICRC covers.
            self.socket.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            self.socket.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
        self.socket.bind(("::" if self.v6 else "", PORT))

    def address(self, lid):
        """Of a port, as bytes."""
        return gid_of(lid) if self.v6 else bytes([10, 99, lid >> 8, lid & 255])

    def icrc(self, source, destination, port, body):
        length = 8 + len(body) + 4
        if self.v6:
            ip = b"\x6f\xff\xff\xff" + struct.pack(">HBB", length, 17, 255)
        else:
            ip = struct.pack(">BBHHHBBH", 0x45, 255, 20 + length, 0, 0x4000, 255, 17, 0xFFFF)
        udp = struct.pack(">HHHH", port, PORT, length, 0xFFFF)
        masked = body[:4] + b"\xff" + body[5:]
        return struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + source + destination + udp + masked))

    def send(self, lid, qpn, pkey, mad):
        """Sends a MAD of any length to a queue pair of a port."""
        pad = -len(mad) % 4
        self.psn = (self.psn + 1) & 0xFFFFFF
        body = struct.pack(">BBHIIII", UD_SEND_ONLY, pad << 4, pkey, qpn, self.psn, GSI_Q_KEY, GSI) + mad + bytes(pad)
        to = self.address(lid)
        packet = body + self.icrc(self.address(self.lid), to, PORT, body)
        if self.v6:
            self.socket.sendto(packet, (text(to), PORT, 0, self.index))
        else:
            self.socket.sendto(packet, (socket.inet_ntoa(to), PORT))

    def receive(self):
        """A Datagram, or None for a packet that is no MAD for this port."""
        packet, extra, _, source = self.socket.recvmsg(9000, 256)
        if self.v6:
            sender = socket.inet_pton(socket.AF_INET6, source[0].split("%")[0])
            (destination,) = (data[:16] for level, _, data in extra if level == socket.IPPROTO_IPV6)
        else:
            sender = socket.inet_aton(source[0])
            (destination,) = (data[8:12] for level, kind, data in extra if level == 0 and kind == IP_PKTINFO)
        (lid,) = struct.unpack(">H", sender[-2:])
        if destination != self.address(self.lid) or lid == self.lid or len(packet) < 24 + 24:
            return None
        body = packet[:-4]
        # The IP identification of IPv4 is unknown here, and the ICRC covers it.
        if self.v6 and self.icrc(sender, destination, source[1], body) != packet[-4:]:
            return None
        opcode, flags, pkey, to, _, _, qpn = struct.unpack_from(">BBHIIII", body)
        if opcode != UD_SEND_ONLY or to & 0xFFFFFF != GSI:
            return None
        return Datagram(lid, qpn & 0xFFFFFF, pkey, body[20 : len(body) - (flags >> 4 & 3)])
