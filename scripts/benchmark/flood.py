"""Floods a port of a host with forged RoCEv2 packets, and prints their number per second.

The packets are of the kinds that a stranger can send: datagrams with a wrong ICRC, a wrong Q_Key or to a queue pair that
nobody has, and packets of connections that nobody has.
"""

import argparse
import random
import socket
import struct
import time

from peers import UD_SEND_ONLY

UDP_SEGMENT = 103
SEGMENTS = 32
RC_SEND_ONLY = 0x04


def packet(chance, args, length):
    """One forged packet, from BTH to ICRC."""
    connected, qpn, qkey = chance.choice(
        (
            (False, args.qpn, args.qkey),
            (False, args.qpn, args.qkey ^ 1),
            (False, chance.randrange(2, 1 << 24), args.qkey),
            (True, chance.randrange(2, 1 << 24), 0),
        )
    )
    opcode = RC_SEND_ONLY if connected else UD_SEND_ONLY
    bth = struct.pack("!BBHII", opcode, 0x40, args.pkey, qpn, chance.randrange(1 << 24))
    deth = b"" if connected else struct.pack("!II", qkey, chance.randrange(2, 1 << 24))
    return bth + deth + chance.randbytes(length - len(bth) - len(deth))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interface", required=True)
    parser.add_argument("--to", required=True, help="link-local address")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--qpn", type=lambda text: int(text, 0), required=True)
    parser.add_argument("--qkey", type=lambda text: int(text, 0), required=True)
    parser.add_argument("--pkey", type=lambda text: int(text, 0), required=True)
    parser.add_argument("--length", type=int, default=200, help="bytes of a packet, from BTH to ICRC (default 200)")
    parser.add_argument("--rate", type=float, help="packets per second (default: as many as this machine can send)")
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    chance = random.Random(1)
    trains = [b"".join(packet(chance, args, args.length) for _ in range(SEGMENTS)) for _ in range(64)]
    out = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    to = (args.to, args.port, 0, socket.if_nametoindex(args.interface))
    cut = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", args.length))]
    sent = 0
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < args.seconds:
        if args.rate and sent > passed * args.rate:
            time.sleep(0.0002)
            continue
        try:
            out.sendmsg([chance.choice(trains)], cut, 0, to)
            sent += SEGMENTS
        except OSError:
            # No room, or an ICMP message about the closed port.
            pass
    print(sent / args.seconds)


main()
