"""A scripted subnet administrator (SA) for tests. It logs one JSON object for each request. With --control, programs
change its behaviour while it runs: each line on that socket is a request, and each answer is a line.

    {"do": "rule", "rule": {...}}        adds a rule (script.py); the first rule that fits applies
    {"do": "clear"}                      removes all rules
    {"do": "set", "values": {...}}       mtu, rate, lifetime, qkey, sl, tclass, flow_label or hop_limit of groups and paths
    {"do": "group", "mgid": "...", "values": {...}}    the same for one group; also mlid
    {"do": "lid", "gid": "...", "lid": 49}    the port has another LID
    {"do": "partitions", "pkeys": [...]} groups of other partitions are deleted
    {"do": "restart", "mlid": 49408}     forgets groups, members and subscriptions; later MLIDs begin with this one
    {"do": "fill", "groups": 10000}      creates so many groups
    {"do": "report", "trap": 66, "gid": "...", "lid": 16}    reports to subscribers, or to one port; also patch, as in
                                         a rule
    {"do": "groups"}                     answers with the groups and their members
"""

import argparse
import heapq
import itertools
import json
import os
import selectors
import socket
import struct
import sys
import time

import records
import rmpp
import script
import subnet
import wire

# Seconds until a Report without an answer is repeated, and how often it is sent.
REPORT_AGAIN, REPORTS = 1.0, 3


def number(text):
    return int(text, 0)


def arguments():
    parser = argparse.ArgumentParser(
        prog="ib-guest sa", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dev", required=True, help="the port's Ethernet")
    parser.add_argument("--lid", type=number, default=1, help="the port's LID [default: 1]")
    parser.add_argument("--encap", type=int, choices=(4, 6), default=6, help="framing on the Ethernet [default: 6]")
    parser.add_argument("--pkeys", default="0xffff,0x8001,0x8002", help="partitions [default: %(default)s]")
    parser.add_argument("--mlid", type=number, default=0xC000, help="the first MLID [default: 0xc000]")
    parser.add_argument("--log", help="file for the log [default: standard output]")
    parser.add_argument("--control", help="path of the control socket")
    for name, value in subnet.DEFAULTS.items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=number, help=f"of groups and paths [default: {value:#x}]")
    return parser.parse_args()


class Server:
    def __init__(self, options):
        self.wire = wire.Wire(options.dev, options.lid, options.encap)
        values = {name: getattr(options, name) for name in subnet.DEFAULTS}
        given = {name: value for name, value in values.items() if value is not None}
        pkeys = [number(pkey) for pkey in options.pkeys.split(",")]
        self.subnet = subnet.Subnet(options.lid, pkeys, options.mlid, given)
        self.subnet.events.clear()
        self.script = script.Script()
        self.tables, self.reports = {}, {}
        self.later, self.order = [], itertools.count()
        self.log = open(options.log, "a", buffering=1) if options.log else sys.stdout
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.wire.socket, selectors.EVENT_READ, self.receive)
        if options.control:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            if os.path.exists(options.control):
                os.unlink(options.control)
            listener.bind(options.control)
            listener.listen()
            self.selector.register(listener, selectors.EVENT_READ, lambda: self.accept(listener))
        self.note(event="start", lid=options.lid, encap=options.encap)

    def note(self, **facts):
        print(json.dumps({"time": round(time.time(), 3), **facts}), file=self.log, flush=True)

    def run(self):
        while True:
            wait = max(0.0, self.later[0][0] - time.monotonic()) if self.later else None
            for key, _ in self.selector.select(wait):
                key.data()
            while self.later and self.later[0][0] <= time.monotonic():
                heapq.heappop(self.later)[2]()
            self.report_events()

    def after(self, seconds, action):
        heapq.heappush(self.later, (time.monotonic() + seconds, next(self.order), action))

    def receive(self):
        datagram = self.wire.receive()
        if datagram is None or len(datagram.mad) < records.HEADER:
            return
        request = records.Request(datagram)
        if request.mgmt_class != 3 or request.base != 1:
            self.note(event="ignored", lid=request.lid, mgmt_class=request.mgmt_class, method=request.method)
        elif request.rmpp_version == 1 and request.rmpp_active and request.rmpp_type != rmpp.DATA:
            table = self.tables.get((request.lid, request.tid))
            if table:
                table.receive(request, time.monotonic())
        elif request.method & 0x80:
            known = self.reports.pop(request.tid, None)
            self.note(event="answer", lid=request.lid, method=hex(request.method), expected=known is not None)
        else:
            self.serve(request)

    def serve(self, request):
        facts = describe(request)
        rule = self.script.rule_for(facts)
        rows, status = [], rule.get("status", 0)
        if rule.applies():
            try:
                rows = self.subnet.answer(request)
            except subnet.Refusal as refusal:
                status = status or refusal.status
        if status:
            rows = []
        rows = [{**row, **rule.get("set", {})} for row in rows]
        if rows and request.attribute in (records.MC_MEMBER, records.PATH):
            facts.update({k: rows[0][k] for k in ("mlid", "dlid") if k in rows[0]})
        if rows and request.attribute == records.MC_MEMBER and request.method != records.GET_TABLE:
            facts["member"] = rows[0]["join_state"]
        self.note(**facts, status=status, records=len(rows), answered=rule.get("answer", True), rule=rule.number)
        if rule.get("answer", True):
            for _ in range(rule.get("copies", 1)):
                self.after(rule.get("delay", 0), lambda: self.reply(request, status, rows, rule))

    def reply(self, request, status, rows, rule):
        to = request.datagram

        def send(mad):
            self.wire.send(to.lid, to.qpn, to.pkey, rule.mangle(mad))

        if request.method == records.GET_TABLE and not status:
            table = rmpp.Table(request, rows, rule, send, time.monotonic())
            self.tables[request.lid, request.tid] = table
            self.watch(request.lid, request.tid, table)
        else:
            data = request.layout.pack(rows[0]) if rows else b""
            send((request.header(status) + data).ljust(records.MAD, b"\0"))

    def watch(self, lid, tid, table):
        """Repeats segments of a table until it is over."""
        if table.over or self.tables.get((lid, tid)) is not table:
            if self.tables.get((lid, tid)) is table:
                del self.tables[lid, tid]
        elif time.monotonic() >= table.deadline:
            table.time_out(time.monotonic())
            self.after(rmpp.REPEAT, lambda: self.watch(lid, tid, table))
        else:
            self.after(table.deadline - time.monotonic(), lambda: self.watch(lid, tid, table))

    def report_events(self):
        events, self.subnet.events = self.subnet.events, []
        for trap, gid in events:
            for lid in self.subnet.subscribers_of(trap):
                self.report(trap, gid, lid)

    def report(self, trap, gid, lid, patches=()):
        tid = struct.pack(">Q", 0x5EED << 32 | next(self.order))
        mad = bytearray(records.HEADER)
        struct.pack_into(">BBBB", mad, 0, 1, 3, 2, records.REPORT)
        mad[8:16] = tid
        struct.pack_into(">H", mad, 16, records.NOTICE)
        mad = (bytes(mad) + self.subnet.report(trap, gid)).ljust(records.MAD, b"\0")
        mad = script.patched(mad, patches)
        self.reports[tid] = lid
        self.note(event="report", lid=lid, trap=trap, gid=wire.text(gid))

        def send(left):
            if tid not in self.reports:
                return
            if not left:
                del self.reports[tid]
                return
            self.wire.send(lid, wire.GSI, 0xFFFF, mad)
            self.after(REPORT_AGAIN, lambda: send(left - 1))

        send(REPORTS)

    def accept(self, listener):
        connection, _ = listener.accept()
        lines = connection.makefile("rw")
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.control(connection, lines))

    def control(self, connection, lines):
        line = lines.readline()
        if not line:
            self.selector.unregister(connection)
            lines.close()
            connection.close()
            return
        try:
            answer = self.obey(json.loads(line)) or {}
        except (ValueError, KeyError, TypeError, OSError, struct.error) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=lines, flush=True)

    def obey(self, request):
        do = request["do"]
        self.note(event="control", request=request)
        if do == "rule":
            return {"rule": self.script.add(request["rule"])}
        if do == "clear":
            self.script.clear()
        elif do == "set":
            self.subnet.set_values(only(request["values"], subnet.DEFAULTS))
        elif do == "group":
            group = self.subnet.groups[socket.inet_pton(socket.AF_INET6, request["mgid"])]
            group.update(only(request["values"], {**subnet.DEFAULTS, "mlid": 0}))
        elif do == "lid":
            self.subnet.lids[socket.inet_pton(socket.AF_INET6, request["gid"])] = request["lid"]
        elif do == "partitions":
            self.subnet.set_partitions(request["pkeys"])
        elif do == "restart":
            self.subnet.restart(request["mlid"], self.subnet.partitions)
            self.subnet.events.clear()
        elif do == "fill":
            for i in range(request["groups"]):
                mgid = bytes.fromhex("ff12601bffff000000000000") + struct.pack(">I", 0xF0000000 + i)
                self.subnet.create({"mgid": mgid, "pkey": 0xFFFF}, permanent=True)
        elif do == "report":
            gid = socket.inet_pton(socket.AF_INET6, request["gid"])
            lids = [request["lid"]] if "lid" in request else self.subnet.subscribers_of(request["trap"])
            for lid in lids:
                self.report(request["trap"], gid, lid, request.get("patch", ()))
            return {"lids": lids}
        elif do == "groups":
            return {"groups": [described(group) for group in self.subnet.groups.values()]}
        else:
            raise ValueError(f"the SA cannot {do}")
        return {}


def only(values, known):
    unknown = set(values) - set(known)
    if unknown:
        raise ValueError(f"there is no value {', '.join(sorted(unknown))}")
    return values


def described(group):
    members = {wire.text(gid): state for gid, state in group["members"].items()}
    values = {name: value for name, value in group.items() if isinstance(value, int)}
    return {"mgid": wire.text(group["mgid"]), **values, "members": members}


def describe(request):
    """What the log says about a request."""
    gid = request.record.get("port_gid", b"")
    facts = {
        "lid": request.lid,
        "port_gid": wire.text(gid if any(gid) else wire.gid_of(request.lid)),
        "method": records.METHODS.get(request.method, hex(request.method)),
        "attribute": records.ATTRIBUTES.get(request.attribute, hex(request.attribute)),
        "mask": hex(request.mask),
        "tid": request.tid.hex(),
    }
    if request.attribute == records.MC_MEMBER:
        facts.update(mgid=wire.text(request.record["mgid"]), join_state=request.record["join_state"])
    elif request.attribute == records.PATH:
        facts["dgid"] = wire.text(request.record["dgid"])
    elif request.attribute == records.INFORM_INFO:
        facts.update(trap=request.record["trap"], subscribe=request.record["subscribe"])
    elif request.attribute == records.SERVICE:
        facts["service_id"] = hex(request.record["service_id"])
    return facts


if __name__ == "__main__":
    Server(arguments()).run()
