"""What the subnet administrator knows: partitions, groups with their members, services, ports and subscriptions."""

import struct

import records
import wire

FULL, NON_MEMBER, SEND_ONLY, SEND_ONLY_FULL = 1, 2, 4, 8
# Components without which no group is created (IBA volume 1, 15.2.5.17.2).
TO_CREATE = {"qkey", "tclass", "pkey", "sl", "flow_label"}
# SendOnlyFullMember joins are supported (bit 12), and the response time.
CAPABILITIES2, RESPONSE_TIME = 1 << 12, 8
EXACTLY = 2

# Values of new groups and of paths, which a test may change. MTU and rate are codes.
DEFAULTS = {"mtu": 4, "rate": 3, "lifetime": 18, "qkey": 0x0B1B, "sl": 0, "tclass": 0, "flow_label": 0, "hop_limit": 0}
OF_PATHS = ("mtu", "rate", "lifetime", "sl", "tclass", "flow_label", "hop_limit")


def broadcast(pkey):
    return bytes.fromhex("ff12401b") + struct.pack(">H", pkey | 0x8000) + bytes(6) + b"\xff" * 4


class Refusal(Exception):
    """The status of an answer without a record."""

    def __init__(self, status):
        super().__init__(hex(status))
        self.status = status


class Subnet:
    def __init__(self, lid, pkeys, mlid, values):
        self.lid, self.values = lid, {**DEFAULTS, **values}
        self.ports = {lid}
        # LIDs of ports whose LID is not that of their GID.
        self.lids = {}
        self.services = {}
        # Events (trap, GID) for subscribers.
        self.events = []
        self.restart(mlid, pkeys)

    def restart(self, mlid, pkeys):
        """Forgets groups, memberships and subscriptions, like a subnet manager that starts; MLIDs begin at mlid."""
        self.groups, self.subscribers = {}, {}
        self.next_mlid = mlid
        self.partitions = set()
        self.set_partitions(pkeys)

    def set_partitions(self, pkeys):
        """Each partition has its broadcast group."""
        self.partitions = {pkey | 0x8000 for pkey in pkeys}
        for pkey in sorted(self.partitions, reverse=True):
            if broadcast(pkey) not in self.groups:
                self.create({"mgid": broadcast(pkey), "pkey": pkey}, permanent=True)
        for mgid in [m for m, g in self.groups.items() if g["pkey"] not in self.partitions]:
            self.remove(mgid)

    def set_values(self, values):
        """Changes the values of all groups, and of later groups and paths."""
        self.values.update(values)
        for group in self.groups.values():
            group.update(values)

    def lid_of(self, gid):
        """0 if the GID belongs to no port of the subnet."""
        return self.lids.get(gid) or wire.lid_of(gid)

    def create(self, given, permanent=False):
        mgid = given["mgid"]
        group = {**self.values, "scope": mgid[1] & 15, **given, "mlid": self.next_mlid}
        group.update(permanent=permanent, members={})
        self.next_mlid += 1
        self.groups[mgid] = group
        self.events.append((66, mgid))
        return group

    def remove(self, mgid):
        del self.groups[mgid]
        self.events.append((67, mgid))

    def answer(self, request):
        """Records of the answer; Refusal."""
        self.ports.add(request.lid)
        attribute, method = request.attribute, request.method
        known = {
            records.CLASS_PORT_INFO: self.class_port_info,
            records.INFORM_INFO: self.inform_info,
            records.MC_MEMBER: self.mc_member,
            records.PATH: self.path,
            records.SERVICE: self.service,
            records.NODE: lambda r: self.select(r, [self.node(lid) for lid in sorted(self.ports)]),
            records.PORT_INFO: lambda r: self.select(r, [self.port(lid) for lid in sorted(self.ports)]),
        }
        if attribute not in known or method not in records.RESPONSES:
            raise Refusal(records.UNSUPPORTED)
        return known[attribute](request)

    @staticmethod
    def select(request, all_records):
        """The answer to Get and GetTable of these records."""
        found = [record for record in all_records if request.matches(record)]
        if request.method == records.GET_TABLE:
            return found
        if request.method != records.GET:
            raise Refusal(records.UNSUPPORTED)
        if len(found) != 1:
            raise Refusal(records.TOO_MANY if found else records.NO_RECORDS)
        return found

    def class_port_info(self, request):
        if request.method != records.GET:
            raise Refusal(records.UNSUPPORTED)
        # Subscriptions are supported (bit 9 of CapabilityMask, as in OpenSM).
        return [
            {"base_version": 1, "class_version": 2, "capabilities": 0x0200}
            | {"capabilities2": CAPABILITIES2, "response_time": RESPONSE_TIME}
        ]

    def inform_info(self, request):
        if request.method != records.SET:
            raise Refusal(records.UNSUPPORTED)
        asked = request.record
        of_port = self.subscribers.setdefault(request.lid, set())
        if asked["subscribe"] == 1:
            of_port.add(asked["trap"])
        elif asked["trap"] in of_port:
            of_port.remove(asked["trap"])
        else:
            raise Refusal(records.INVALID)
        return [asked]

    def mc_member(self, request):
        if request.method == records.SET:
            return [self.join(request)]
        if request.method == records.DELETE:
            return [self.leave(request)]
        # Without the port's GID, one record for each group; with it, one for each membership (15.2.5.17.1).
        rows = [member_record(g, bytes(16), 0) for g in self.groups.values()]
        if "port_gid" in request.components:
            rows = [member_record(g, gid, state) for g in self.groups.values() for gid, state in g["members"].items()]
        return self.select(request, rows)

    def join(self, request):
        asked, components = request.record, request.components
        mgid, gid = asked["mgid"], asked["port_gid"]
        if not {"mgid", "port_gid", "join_state"} <= components or not asked["join_state"]:
            raise Refusal(records.COMPONENTS)
        if mgid[0] != 0xFF or self.lid_of(gid) not in self.ports:
            raise Refusal(records.INVALID)
        group = self.groups.get(mgid)
        if group is None:
            group = self.create(self.wanted(asked, components))
        elif not self.fits(group, asked, components):
            raise Refusal(records.INVALID)
        members = group["members"]
        members[gid] = members.get(gid, 0) | asked["join_state"]
        return member_record(group, gid, members[gid])

    def wanted(self, asked, components):
        """The group that a join creates."""
        if not TO_CREATE <= components:
            raise Refusal(records.COMPONENTS)
        if asked["pkey"] | 0x8000 not in self.partitions or not asked["join_state"] & (FULL | SEND_ONLY_FULL):
            raise Refusal(records.INVALID)
        given = {name: asked[name] for name in TO_CREATE | {"mgid"}}
        given["pkey"] |= 0x8000
        for name in ("mtu", "rate", "lifetime"):
            if {name, name + "_selector"} <= components and asked[name + "_selector"] == EXACTLY:
                given[name] = asked[name]
        if "hop_limit" in components:
            given["hop_limit"] = asked["hop_limit"]
        return given

    @staticmethod
    def fits(group, asked, components):
        """Whether a group is as a join asks. Selectors: 0 greater than, 1 less than, 2 exactly, 3 the largest."""
        for name in ("mtu", "rate"):
            if {name, name + "_selector"} <= components:
                has, want = group[name], asked[name]
                if not {0: has > want, 1: has < want, 2: has == want, 3: True}[asked[name + "_selector"]]:
                    return False
        exact = components & {"qkey", "sl", "flow_label", "tclass"}
        if any(group[name] != asked[name] for name in exact):
            return False
        return "pkey" not in components or group["pkey"] == asked["pkey"] | 0x8000

    def leave(self, request):
        asked = request.record
        mgid, gid, states = asked["mgid"], asked["port_gid"], asked["join_state"]
        group = self.groups.get(mgid)
        had = group["members"].get(gid, 0) if group else 0
        if not had or not had & states:
            raise Refusal(records.INVALID)
        left = had & ~states
        if left:
            group["members"][gid] = left
        else:
            del group["members"][gid]
        full = any(state & (FULL | SEND_ONLY_FULL) for state in group["members"].values())
        if not full and not group["permanent"]:
            self.remove(mgid)
        return member_record(group, gid, left)

    def path(self, request):
        asked, components = request.record, request.components
        sgid = asked["sgid"] if "sgid" in components else wire.gid_of(request.lid)
        dgid = asked["dgid"] if "dgid" in components else None
        if dgid is None:
            if "dlid" not in components:
                raise Refusal(records.COMPONENTS)
            dgid = wire.gid_of(asked["dlid"])
        group = self.groups.get(dgid)
        dlid = group["mlid"] if group else self.lid_of(dgid)
        pkey = asked["pkey"] if "pkey" in components else 0xFFFF
        # A path to a port that nobody has seen exists nevertheless: the port has asked for nothing yet.
        if not dlid or pkey | 0x8000 not in self.partitions:
            if request.method == records.GET_TABLE:
                return []
            raise Refusal(records.NO_RECORDS)
        path = {name: (group or self.values)[name] for name in OF_PATHS}
        path.update({name + "_selector": EXACTLY for name in ("mtu", "rate", "lifetime")})
        path.update(dgid=dgid, sgid=sgid, dlid=dlid, slid=self.lid_of(sgid), pkey=pkey, reversible=1)
        if "service_id" in components:
            path["service_id"] = asked["service_id"]
        return [path]

    def service(self, request):
        asked = request.record
        key = (asked["service_id"], asked["service_gid"], asked["pkey"])
        if request.method == records.SET:
            self.services[key] = asked
            return [asked]
        if request.method == records.DELETE:
            if key not in self.services:
                raise Refusal(records.NO_RECORDS)
            return [self.services.pop(key)]
        return self.select(request, list(self.services.values()))

    def node(self, lid):
        guid = int.from_bytes(wire.gid_of(lid)[8:], "big")
        return {
            **{"lid": lid, "base_version": 1, "class_version": 1, "node_type": 1, "ports": 1, "local_port": 1},
            **{"system_guid": guid, "node_guid": guid, "port_guid": guid, "partitions": 16},
            "description": f"port {lid:#x}".encode().ljust(64, b"\0"),
        }

    def port(self, lid):
        prefix = int.from_bytes(wire.PREFIX[:8], "big")
        return {
            **{"lid": lid, "port": 1, "gid_prefix": prefix, "base_lid": lid, "sm_lid": self.lid, "local_port": 1},
            **{"width_active": 2, "state": 4, "physical": 5, "speed_active": 4, "neighbour_mtu": 5, "mtu_cap": 5},
        }

    def report(self, trap, gid):
        """The Notice of an event (14.2.5.1)."""
        issuer = wire.gid_of(self.lid)
        notice = {"generic": 1, "type": 3, "producer": 4, "trap": trap, "issuer_lid": self.lid, "gid": gid}
        return records.NOTICE_LAYOUT.pack({**notice, "issuer_gid": issuer})

    def subscribers_of(self, trap):
        return sorted(lid for lid, traps in self.subscribers.items() if traps & {trap, 0xFFFF})


def member_record(group, gid, state):
    exactly = {name + "_selector": EXACTLY for name in ("mtu", "rate", "lifetime")}
    return {**group, **exactly, "port_gid": gid, "join_state": state}
