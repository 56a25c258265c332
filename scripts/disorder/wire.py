"""The wire between the hosts: a relay that loses, doubles, delays and damages packets, and a sender of forged ones.

Programs for the namespace of the forwarder: `wire.py relay PORT PORT PERCENT SEED`, `wire.py forge PORT PORT SECONDS SEED`,
`wire.py storm PORT COUNT`. Frames must have finished checksums.
"""

import random
import select
import socket
import struct
import sys
import time
import zlib

ETH_P_ALL = 3
PACKET_OUTGOING = 4
ROCE_PORT = 4791
ETHERNET, IPV4, IPV6, UDP = 14, 20, 40, 8


def open_port(name):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.bind((name, 0))
    port.setblocking(False)
    return port


def received(port):
    """The frames that wait at a port, without those that this machine sends."""
    while True:
        try:
            frame, address = port.recvfrom(65535)
        except BlockingIOError:
            return
        if address[2] != PACKET_OUTGOING:
            yield frame


def send(port, frame):
    try:
        port.send(frame)
    except OSError:
        # The queue is full, or the link is down: a lost packet.
        pass


def roce(frame):
    """Start of the UDP header of a RoCE packet, or None."""
    ethertype = frame[12:14]
    start = ETHERNET + (IPV4 if ethertype == b"\x08\x00" else IPV6)
    protocol = frame[ETHERNET + (9 if ethertype == b"\x08\x00" else 6) : start]
    if ethertype not in (b"\x08\x00", b"\x86\xdd") or protocol[:1] != b"\x11":
        return None
    return start if frame[start + 2 : start + 4] == struct.pack("!H", ROCE_PORT) else None


def damaged(frame, chance):
    """Two 16-bit words change places, which the UDP checksum does not notice."""
    start = roce(frame)
    if start is None or len(frame) < start + UDP + 24:
        return frame
    frame = bytearray(frame)
    first, second = (start + UDP + 2 * chance.randrange((len(frame) - start - UDP) // 2) for _ in range(2))
    frame[first : first + 2], frame[second : second + 2] = frame[second : second + 2], frame[first : first + 2]
    return bytes(frame)


def relay(ports, percent, seed):
    """Passes frames between two ports until the end of the process; first prints a line."""
    print("ready", flush=True)
    chance = random.Random(seed)
    late = []
    share = percent / 100
    while True:
        select.select(ports, [], [], 0.002 if late else None)
        for port, other in (ports, ports[::-1]):
            for frame in received(port):
                luck = chance.random()
                if luck < share:
                    continue
                if luck < 2 * share:
                    frame = damaged(frame, chance)
                elif luck < 3 * share:
                    send(other, frame)
                elif luck < 4 * share:
                    late.append((time.monotonic() + chance.uniform(0.0005, 0.005), other, frame))
                    continue
                send(other, frame)
        now = time.monotonic()
        for _, port, frame in (l for l in late if l[0] <= now):
            send(port, frame)
        late = [l for l in late if l[0] > now]


def with_icrc(frame, start):
    """The frame with a right ICRC (InfiniBand Architecture, annex A17.3.3) and UDP checksum."""
    masked = bytearray(frame[ETHERNET:-4])
    at = start - ETHERNET
    if at == IPV4:
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
    else:
        masked[0] |= 0x0F
        masked[1] = masked[2] = masked[3] = masked[7] = 0xFF
    masked[at + 6] = masked[at + 7] = 0xFF
    masked[at + UDP + 4] = 0xFF
    icrc = zlib.crc32(b"\xff" * 8 + bytes(masked))
    frame = frame[:-4] + struct.pack("<I", icrc)
    addresses = frame[start - 8 : start] if at == IPV4 else frame[start - 32 : start]
    udp = frame[start : start + 6] + b"\0\0" + frame[start + UDP :]
    whole = addresses + struct.pack("!HH", 17, len(udp)) + udp + b"\0" * (len(udp) % 2)
    total = sum(struct.unpack(f"!{len(whole) // 2}H", whole))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    checksum = (~total & 0xFFFF) or 0xFFFF
    return frame[: start + 6] + struct.pack("!H", checksum) + frame[start + UDP :]


def claims_address(packet):
    """Whether a RoCE packet has ARP or neighbour discovery, of IPoIB or Ethernet."""
    ipv6 = packet.find(b"\x86\xdd", 20)
    # Behind the IPv6 header, perhaps with IPoIB's reserved bytes between.
    discovery = ipv6 >= 0 and any(
        packet[ipv6 + 8 + gap : ipv6 + 9 + gap] == b"\x3a" and packet[ipv6 + 42 + gap] in range(133, 138)
        for gap in (0, 2)
        if len(packet) > ipv6 + 42 + gap
    )
    return discovery or packet.find(b"\x08\x06", 20) >= 0


def forged(frame, chance):
    """A RoCE packet of the wire with other bytes, mostly in its headers, and often with a right ICRC.

    ARP and neighbour discovery have other headers only: a host of the link may claim any IP address for itself, as on
    Ethernet, and the hosts believe it for some seconds.
    """
    start = roce(frame)
    bytes_of = bytearray(frame)
    payload = start + UDP
    reach = 20 if claims_address(frame[payload:]) else 80 if chance.random() < 0.8 else len(frame)
    for _ in range(chance.randrange(4)):
        bytes_of[chance.randrange(payload, min(len(frame) - 4, payload + reach))] = chance.randrange(256)
    if chance.random() < 0.1:
        del bytes_of[chance.randrange(payload + 16, len(frame)) :]
        return bytes(bytes_of)
    return with_icrc(bytes(bytes_of), start) if chance.random() < 0.9 else bytes(bytes_of)


def forge(ports, seconds, seed):
    """Collects packets of all kinds for a moment, and floods both hosts with changed ones."""
    chance = random.Random(seed)
    kinds = {}
    end = time.monotonic() + seconds
    sent = 0
    while time.monotonic() < end:
        for port in ports:
            for frame in received(port):
                start = roce(frame)
                if start is None:
                    continue
                # One packet for each opcode and queue pair.
                kinds[frame[start + UDP], frame[start + 13 : start + 16], frame[:6]] = frame
        samples = list(kinds.values())[-64:]
        for _ in range(200 if samples else 0):
            frame = chance.choice(samples)
            # To the host that the frame is for.
            for port in ports:
                send(port, forged(frame, chance))
            sent += 2
        time.sleep(0 if samples else 0.01)
    print(sent)


def storm(port, count):
    """Broadcasts from as many Ethernet addresses."""
    for number in range(count):
        send(port, b"\xff" * 6 + b"\x02\x77" + struct.pack("!I", number) + b"\x88\xb5" + bytes(46))
        if number % 50 == 0:
            time.sleep(0.001)


def main():
    what, *rest = sys.argv[1:]
    if what == "storm":
        storm(open_port(rest[0]), int(rest[1]))
        return
    ports = [open_port(name) for name in rest[:2]]
    {"relay": relay, "forge": forge}[what](ports, float(rest[2]), int(rest[3]))


if __name__ == "__main__":
    main()
