#!/usr/bin/env python3
"""A DHCPv4 server for an InfiniBand link (RFC 4390).

Its answers have hardware type 32, hardware length 0 and no hardware address (section 2.1). It ignores
Ethernet addresses, so a client without an IP address that does not request a broadcast answer
(section 2.2) gets no answer. The client identifier identifies a client, or the hardware address if
the client sent none.

usage: server.py LOG INTERFACE OWN-ADDRESS FIRST-LEASE SECONDS RENEW-AFTER REBIND-AFTER

Writes a line of JSON for each message to LOG, before it answers.
"""

import ipaddress
import json
import socket
import struct
import sys

HEADER = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s4s")
MAGIC = bytes([99, 130, 83, 99])
BROADCAST_FLAG = 0x8000
DISCOVER, OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE, INFORM = range(1, 9)
NAMES = "- discover offer request decline ack nak release inform".split()
INFINIBAND = 32
SUBNET_MASK, REQUESTED, LEASE_TIME, TYPE, SERVER, T1, T2, CLIENT_ID = 1, 50, 51, 53, 54, 58, 59, 61


class Message:
    def __init__(self, data):
        (self.op, self.htype, self.hlen, _, self.xid, _, self.flags, self.ciaddr, _, _,
         _, self.chaddr, _, _, magic) = HEADER.unpack_from(data)
        if magic != MAGIC or self.op != 1:
            raise ValueError("no DHCP request")
        self.options = {}
        at = HEADER.size
        while data[at] != 255:
            if data[at] == 0:
                at += 1
                continue
            code, length = data[at], data[at + 1]
            value = data[at + 2:at + 2 + length]
            if len(value) != length:
                raise ValueError("an option is cut")
            self.options[code] = value
            at += 2 + length
        self.type = self.options[TYPE][0]

    def client(self):
        return self.options.get(CLIENT_ID) or bytes([self.htype]) + self.chaddr[:self.hlen]

    def describe(self, source, answer):
        return {
            "type": NAMES[self.type],
            "source": source,
            "ciaddr": str(ipaddress.IPv4Address(self.ciaddr)),
            "broadcast": bool(self.flags & BROADCAST_FLAG),
            "htype": self.htype,
            "hlen": self.hlen,
            "chaddr": self.chaddr.hex(),
            "client_id": self.options.get(CLIENT_ID, b"").hex(),
            "answer": answer,
        }


class Server:
    def __init__(self, own, first, times):
        self.own = ipaddress.IPv4Address(own).packed
        self.next = ipaddress.IPv4Address(first)
        self.times = times
        self.leases = {}

    def lease_of(self, client):
        if client not in self.leases:
            self.leases[client] = self.next.packed
            self.next += 1
        return self.leases[client]

    def answer(self, message):
        """The type of the answer and the leased address, or None."""
        chosen = message.options.get(SERVER)
        if message.type == RELEASE:
            self.leases.pop(message.client(), None)
            return None
        if message.type not in (DISCOVER, REQUEST) or chosen not in (None, self.own):
            return None
        address = self.lease_of(message.client())
        if message.type == DISCOVER:
            return OFFER, address
        wanted = message.options.get(REQUESTED, message.ciaddr)
        return (ACK, address) if wanted == address else (NAK, bytes(4))

    def encode(self, message, kind, address):
        lease, t1, t2 = self.times
        header = HEADER.pack(
            2, INFINIBAND, 0, 0, message.xid, 0, message.flags, message.ciaddr, address,
            self.own, bytes(4), bytes(16), bytes(64), bytes(128), MAGIC)
        options = [(TYPE, bytes([kind])), (SERVER, self.own)]
        if kind != NAK:
            options += [(LEASE_TIME, struct.pack("!I", lease)), (T1, struct.pack("!I", t1)),
                        (T2, struct.pack("!I", t2)), (SUBNET_MASK, bytes([255, 255, 255, 0]))]
        if CLIENT_ID in message.options:  # RFC 6842
            options.append((CLIENT_ID, message.options[CLIENT_ID]))
        return header + b"".join(bytes([c, len(v)]) + v for c, v in options) + b"\xff"


def destination(message, kind):
    """RFC 2131, section 4.1, on a link where no answer can be sent to a hardware address."""
    if message.ciaddr != bytes(4) and kind != NAK:
        return str(ipaddress.IPv4Address(message.ciaddr))
    if message.flags & BROADCAST_FLAG or kind == NAK:
        return "255.255.255.255"
    return None


def main():
    path, interface, own, first, *times = sys.argv[1:]
    log = open(path, "w", buffering=1)
    server = Server(own, first, [int(t) for t in times])
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
    link.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    link.bind(("", 67))
    print(json.dumps({"type": "ready"}), file=log)
    while True:
        data, (source, _) = link.recvfrom(2048)
        try:
            message = Message(data)
        except (ValueError, IndexError, KeyError, struct.error) as error:
            print(json.dumps({"type": "malformed", "why": str(error)}), file=log)
            continue
        reply = server.answer(message)
        to = destination(message, reply[0]) if reply else None
        print(json.dumps(message.describe(source, to)), file=log)
        if to:
            link.sendto(server.encode(message, *reply), (to, 68))


main()
