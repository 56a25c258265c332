"""Tables in segments, sent by RMPP (IBA volume 1, 13.6)."""

import struct

import records

DATA, ACK, STOP, ABORT = 1, 2, 3, 4
ACTIVE, FIRST, LAST = 1, 2, 4
# Seconds until a segment without an answer is repeated, and how often it is.
REPEAT, REPETITIONS = 1.0, 5
# "No response time given" (13.6.2.1).
NO_RESPONSE_TIME = 31
# Bytes of the SA header in each segment's PayloadLength.
SA_HEADER = 20


class Table:
    """A table on its way. `send` takes a MAD."""

    def __init__(self, request, rows, rule, send, now):
        self.header, self.rule, self.send = request.header(0), rule, send
        size = (request.layout.size + 7) // 8 * 8
        data = b"".join(request.layout.pack(row).ljust(size, b"\0") for row in rows)
        self.segments = [data[i : i + records.DATA] for i in range(0, len(data), records.DATA)] or [b""]
        self.lose = set(rule.get("lose", []))
        self.last = min(len(self.segments), rule.get("stop", len(self.segments)))
        self.sent, self.acknowledged, self.window = 0, 0, 1
        self.repeated, self.over = 0, False
        self.go_on(now)

    def go_on(self, now):
        """Sends what the window allows."""
        self.deadline = now + REPEAT
        while self.sent < min(self.window, self.last) and not self.over:
            self.sent += 1
            self.send_segment(self.sent)
            abort = self.rule.get("abort")
            if abort and self.sent == abort[0]:
                self.send_rmpp(abort[1], 0, abort[2], 0, 0, b"")
                self.over = True

    def send_segment(self, number):
        data, total = self.segments[number - 1], len(self.segments)
        flags = (FIRST if number == 1 else 0) | (LAST if number == total else 0)
        length = 0
        if number == 1:
            length = sum(len(segment) + SA_HEADER for segment in self.segments)
        if number == total:
            length = len(data) + SA_HEADER
        if number in self.lose:
            self.lose.remove(number)
        else:
            self.send_rmpp(DATA, flags, 0, number, length, data)

    def send_rmpp(self, kind, flags, status, number, length, data):
        mad = bytearray(self.header)
        flags |= NO_RESPONSE_TIME << 3 | ACTIVE
        struct.pack_into(">BBBBII", mad, 24, 1, kind, flags, status, number, length)
        self.send((bytes(mad) + data).ljust(records.MAD, b"\0"))

    def receive(self, request, now):
        """ACK, STOP or ABORT from the receiver."""
        if request.rmpp_type != ACK:
            self.over = True
            return
        acknowledged, window = struct.unpack_from(">II", request.mad, 28)
        self.acknowledged = max(self.acknowledged, acknowledged)
        self.window, self.repeated = max(self.window, window), 0
        self.over = self.over or self.acknowledged >= len(self.segments)
        self.go_on(now)

    def time_out(self, now):
        self.repeated += 1
        if self.repeated > REPETITIONS:
            self.over = True
        else:
            self.sent = self.acknowledged
            self.go_on(now)
