"""Many peers of one daemon: each requests a connection and then sends nothing.

Several peers share an address, like partitions of a port: a daemon bounds the connections of one peer. Runs in a namespace
without a daemon. Prints one line of JSON when all peers are connected, and disconnects at the end of its standard input. The layouts are those of the IBA, vol. 1, tables 106 ff., and RFC 4755, 6.
"""

import argparse
import json
import select
import socket
import struct
import subprocess
import sys
import time
import zlib

ROCE_PORT = 4791
GSI, GSI_QKEY = 1, 0x80010000
UD_SEND_ONLY = 0x64
REQ, REJ, REP, RTU, DREQ, DREP = 0x10, 0x12, 0x13, 0x14, 0x15, 0x16
LINUX_SERVICE = 0x10 << 56
RECEIVE_MTU = 65524
FIRST_ID = 0x5000_0001
PATIENCE = 0.2  # Seconds before a message is repeated.
TRIES = 50
PEERS_OF_AN_ADDRESS = 16


def icrc(source, destination, port, covered):
    """ICRC over IPv6, with fields that routers may change as ones (annex A17.3.3)."""
    length = 8 + len(covered) + 4
    header = b"\xff" * 8 + b"\x6f\xff\xff\xff" + struct.pack(">HBB", length, 17, 0xFF) + source + destination
    udp = struct.pack(">HHHH", port, ROCE_PORT, length, 0xFFFF)
    masked = covered[:4] + b"\xff" + covered[5:]
    return struct.pack("<I", zlib.crc32(header + udp + masked))


class Peers:
    def __init__(self, args):
        self.qpn, self.pkey, self.count = args.qpn, args.pkey, args.count
        self.scope = socket.if_nametoindex(args.interface)
        self.to = (args.to, ROCE_PORT, 0, self.scope)
        self.peer = socket.inet_pton(socket.AF_INET6, args.to)
        self.addresses = [f"fe80::9:{n + 1:x}" for n in range(-(-self.count // PEERS_OF_AN_ADDRESS))]
        self._add_addresses(args.interface)
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.socket.bind(("::", ROCE_PORT))
        self.accepted = {}

    def _add_addresses(self, interface):
        lines = "".join(f"address replace {address}/64 dev {interface} nodad\n" for address in self.addresses)
        subprocess.run(["ip", "-6", "-batch", "-"], input=lines, text=True, check=True)

    def address_of(self, own):
        """The address, as bytes, of the peer with this communication id."""
        address = self.addresses[(own - FIRST_ID) // PEERS_OF_AN_ADDRESS]
        return socket.inet_pton(socket.AF_INET6, address)

    def send(self, attribute, own, data):
        source = self.address_of(own)
        mad = bytes((1, 7, 2, 3, 0, 0, 0, 0)) + struct.pack(">QH", own, attribute) + bytes(6)
        bth = struct.pack(">BBHII", UD_SEND_ONLY, 0, self.pkey, GSI, 0)
        covered = bth + struct.pack(">II", GSI_QKEY, GSI) + mad + data.ljust(232, b"\0")
        packet = covered + icrc(source, self.peer, ROCE_PORT, covered)
        from_here = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, source + struct.pack("=I", self.scope))
        self.socket.sendmsg([packet], [from_here], 0, self.to)

    def request(self, own):
        number, source = own - FIRST_ID, self.address_of(own)
        data = bytearray(232)
        struct.pack_into(">I4xQQ", data, 0, own, LINUX_SERVICE | self.qpn, 0x0002C90300AA0001)
        struct.pack_into(">IB", data, 32, (0x1000 + number) << 8 | 4, 0)
        data[43] = 20 << 3
        data[47] = 20 << 3
        struct.pack_into(">H", data, 48, self.pkey)
        data[50], data[51] = 5 << 4, 15 << 4 | 1 << 3
        data[52:54], data[54:56] = source[14:], self.peer[14:]
        data[56:72], data[72:88] = source, self.peer
        data[91], data[94], data[95] = 3, 1 << 3, 19 << 3
        struct.pack_into(">II", data, 140, 0x20000 + number, RECEIVE_MTU)
        self.send(REQ, own, bytes(data))

    def receive(self, seconds):
        """(attribute, data) of the next message of communication management, or None."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.socket], [], [], left)[0]:
                return None
            packet = self.socket.recv(9000)
            if packet[0] == UD_SEND_ONLY and packet[20:24] == bytes((1, 7, 2, 3)):
                return struct.unpack_from(">H", packet, 36)[0], packet[44:-4]
        return None

    def until(self, wanted, ask, own):
        """Repeats the request until this kind of answer for connection `own` arrives."""
        for _ in range(TRIES):
            ask()
            while answer := self.receive(PATIENCE):
                attribute, data = answer
                theirs, ours = struct.unpack_from(">II", data)
                if ours == own and attribute == wanted:
                    return theirs, data
                if ours == own and attribute == REJ:
                    raise SystemExit(f"rejected with reason {struct.unpack_from('>H', data, 10)[0]}")
        raise SystemExit(f"no answer to message {wanted:#x} of connection {own - FIRST_ID}")

    def connect(self):
        for own in range(FIRST_ID, FIRST_ID + self.count):
            theirs, data = self.until(REP, lambda own=own: self.request(own), own)
            self.accepted[own] = theirs, data[12:15]
            self.send(RTU, own, struct.pack(">II", own, theirs))

    def disconnect(self):
        for own, (theirs, qpn) in self.accepted.items():
            data = struct.pack(">II", own, theirs) + qpn
            self.until(DREP, lambda own=own, data=data: self.send(DREQ, own, data), own)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interface", required=True)
    parser.add_argument("--to", required=True, help="GID of the daemon")
    parser.add_argument("--qpn", type=int, required=True, help="its UD queue pair")
    parser.add_argument("--pkey", type=lambda text: int(text, 0), default=0xFFFF)
    parser.add_argument("--count", type=int, default=1000)
    peers = Peers(parser.parse_args())
    peers.connect()
    print(json.dumps({"connected": len(peers.accepted)}), flush=True)
    sys.stdin.read()
    peers.disconnect()


if __name__ == "__main__":
    main()
