#!/usr/bin/env python3
"""A DHCPv4 client like that of kernel IPoIB hosts: hardware type 32, no hardware address, a client
identifier, and the BROADCAST flag while it has no address (RFC 4390, sections 2.1 and 2.2).

usage: client.py INTERFACE CLIENT-ID-HEX

Requests an address and prints the answers as lines of JSON; exits with status 1 without a lease.
"""

import ipaddress
import json
import os
import socket
import struct
import sys
import time

HEADER = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s4s")
MAGIC = bytes([99, 130, 83, 99])
DISCOVER, OFFER, REQUEST, ACK = 1, 2, 3, 5
PATIENCE = 15


def encode(kind, xid, options):
    header = HEADER.pack(1, 32, 0, 0, xid, 0, 0x8000, bytes(4), bytes(4), bytes(4), bytes(4),
                         bytes(16), bytes(64), bytes(128), MAGIC)
    options = [(53, bytes([kind]))] + options
    return header + b"".join(bytes([c, len(v)]) + v for c, v in options) + b"\xff"


def decode(data):
    op, htype, hlen, _, xid, _, _, _, yiaddr, _, _, chaddr, _, _, magic = HEADER.unpack_from(data)
    options, at = {}, HEADER.size
    while data[at] != 255:
        if data[at]:
            options[data[at]] = data[at + 2:at + 2 + data[at + 1]]
            at += 1 + data[at + 1]
        at += 1
    good = op == 2 and magic == MAGIC
    return good, xid, yiaddr, options, {"htype": htype, "hlen": hlen, "chaddr": chaddr.hex()}


def ask(link, kind, expected, xid, options):
    """Sends until the expected answer arrives. Returns the address and the server."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        link.sendto(encode(kind, xid, options), ("255.255.255.255", 67))
        again = time.monotonic() + 1
        while (left := again - time.monotonic()) > 0:
            link.settimeout(left)
            try:
                data, _ = link.recvfrom(2048)
            except socket.timeout:
                break
            good, answered, yiaddr, found, fields = decode(data)
            if good and answered == xid and found.get(53) == bytes([expected]):
                fields["yiaddr"] = str(ipaddress.IPv4Address(yiaddr))
                print(json.dumps(fields), flush=True)
                return yiaddr, found[54]
    sys.exit(f"no answer of type {expected}")


def main():
    interface, client_id = sys.argv[1], bytes.fromhex(sys.argv[2])
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
    link.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    link.bind(("", 68))
    xid = int.from_bytes(os.urandom(4), "big")
    address, server = ask(link, DISCOVER, OFFER, xid, [(61, client_id)])
    ask(link, REQUEST, ACK, xid, [(61, client_id), (50, address), (54, server)])


main()
