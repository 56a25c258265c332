"""Layouts of subnet administration (IBA volume 1, 15.2): the MAD, and its records as dictionaries of integers and bytes.
"""

import struct

GET, SET, REPORT, GET_TABLE, DELETE = 0x01, 0x02, 0x06, 0x12, 0x15
METHODS = {GET: "Get", SET: "Set", REPORT: "Report", GET_TABLE: "GetTable", DELETE: "Delete"}
# The method of an answer.
RESPONSES = {GET: 0x81, SET: 0x81, REPORT: 0x86, GET_TABLE: 0x92, DELETE: 0x95}

CLASS_PORT_INFO, NOTICE, INFORM_INFO, NODE, PORT_INFO, SERVICE, PATH, MC_MEMBER = (
    *(0x01, 0x02, 0x03, 0x11, 0x12, 0x31, 0x35, 0x38),
)
ATTRIBUTES = {
    CLASS_PORT_INFO: "ClassPortInfo",
    NOTICE: "Notice",
    INFORM_INFO: "InformInfo",
    NODE: "NodeRecord",
    PORT_INFO: "PortInfoRecord",
    SERVICE: "ServiceRecord",
    PATH: "PathRecord",
    MC_MEMBER: "MCMemberRecord",
}

BUSY, UNSUPPORTED = 0x0001, 0x000C
NO_RESOURCES, INVALID, NO_RECORDS, TOO_MANY, BAD_GID, COMPONENTS = (
    *(0x0100, 0x0200, 0x0300, 0x0400, 0x0500, 0x0600),
)

MAD, HEADER, DATA = 256, 56, 200


class Layout:
    """Fields of a record, (name, bits), where "_" is reserved. Bit N of a component mask stands for components[N]."""

    def __init__(self, *fields, components=None):
        self.fields = fields
        self.size = sum(bits for _, bits in fields) // 8
        self.components = components or [name for name, _ in fields]

    def pack(self, record):
        value = 0
        for name, bits in self.fields:
            field = record.get(name, 0)
            field = int.from_bytes(field, "big") if isinstance(field, bytes) else field
            value = value << bits | field & (1 << bits) - 1
        return value.to_bytes(self.size, "big")

    def unpack(self, data):
        value = int.from_bytes(data[: self.size].ljust(self.size, b"\0"), "big")
        record = {}
        for name, bits in reversed(self.fields):
            field = value & (1 << bits) - 1
            record[name] = field.to_bytes(bits // 8, "big") if bits >= 128 else field
            value >>= bits
        return record

    def named(self, mask):
        """Names of the components of a mask."""
        return {name for i, name in enumerate(self.components) if mask >> i & 1}


MC_MEMBER_RECORD = Layout(
    *(("mgid", 128), ("port_gid", 128), ("qkey", 32), ("mlid", 16), ("mtu_selector", 2), ("mtu", 6), ("tclass", 8)),
    *(("pkey", 16), ("rate_selector", 2), ("rate", 6), ("lifetime_selector", 2), ("lifetime", 6), ("sl", 4)),
    *(("flow_label", 20), ("hop_limit", 8), ("scope", 4), ("join_state", 4), ("proxy_join", 1), ("_", 23)),
    *(("_", 32),),
    components=[
        *("mgid", "port_gid", "qkey", "mlid", "mtu_selector", "mtu", "tclass", "pkey", "rate_selector", "rate"),
        *("lifetime_selector", "lifetime", "sl", "flow_label", "hop_limit", "scope", "join_state", "proxy_join"),
    ],
)
PATH_RECORD = Layout(
    *(("service_id", 64), ("dgid", 128), ("sgid", 128), ("dlid", 16), ("slid", 16), ("raw", 1), ("_", 3)),
    *(("flow_label", 20), ("hop_limit", 8), ("tclass", 8), ("reversible", 1), ("numb_path", 7), ("pkey", 16)),
    *(("qos_class", 12), ("sl", 4), ("mtu_selector", 2), ("mtu", 6), ("rate_selector", 2), ("rate", 6)),
    *(("lifetime_selector", 2), ("lifetime", 6), ("preference", 8), ("_", 48)),
    components=[
        *("service_id", "service_id", "dgid", "sgid", "dlid", "slid", "raw", "_", "flow_label", "hop_limit"),
        *("tclass", "reversible", "numb_path", "pkey", "qos_class", "sl", "mtu_selector", "mtu", "rate_selector"),
        *("rate", "lifetime_selector", "lifetime", "preference"),
    ],
)
SERVICE_RECORD = Layout(
    *(("service_id", 64), ("service_gid", 128), ("pkey", 16), ("_", 16), ("lease", 32), ("key", 128)),
    *(("name", 512), ("data8", 128), ("data16", 128), ("data32", 128), ("data64", 128)),
)
NODE_RECORD = Layout(
    *(("lid", 16), ("_", 16), ("base_version", 8), ("class_version", 8), ("node_type", 8), ("ports", 8)),
    *(("system_guid", 64), ("node_guid", 64), ("port_guid", 64), ("partitions", 16), ("device", 16)),
    *(("revision", 32), ("local_port", 8), ("vendor", 24), ("description", 512), ("_", 32)),
)
PORT_INFO_RECORD = Layout(
    *(("lid", 16), ("port", 8), ("options", 8), ("mkey", 64), ("gid_prefix", 64), ("base_lid", 16), ("sm_lid", 16)),
    *(("capabilities", 32), ("diag_code", 16), ("mkey_lease", 16), ("local_port", 8), ("width_enabled", 8)),
    *(("width_supported", 8), ("width_active", 8), ("speed_supported", 4), ("state", 4), ("physical", 4)),
    *(("down_default", 4), ("mkey_protect", 2), ("_", 3), ("lmc", 3), ("speed_active", 4), ("speed_enabled", 4)),
    *(("neighbour_mtu", 4), ("sm_sl", 4), ("vl_cap", 4), ("init_type", 4), ("_", 24), ("init_reply", 4)),
    *(("mtu_cap", 4), ("_", 176), ("_", 32)),
)
INFORM_INFO_LAYOUT = Layout(
    *(("gid", 128), ("lid_begin", 16), ("lid_end", 16), ("_", 16), ("generic", 8), ("subscribe", 8), ("type", 16)),
    *(("trap", 16), ("qpn", 24), ("_", 3), ("response_time", 5), ("_", 8), ("producer", 24)),
)
NOTICE_LAYOUT = Layout(
    *(("generic", 1), ("type", 7), ("producer", 24), ("trap", 16), ("issuer_lid", 16), ("toggle", 1), ("count", 15)),
    *(("_", 48), ("gid", 128), ("_", 256), ("issuer_gid", 128)),
)
CLASS_PORT_INFO_LAYOUT = Layout(
    *(("base_version", 8), ("class_version", 8), ("capabilities", 16), ("capabilities2", 27), ("response_time", 5)),
    *(("redirect_gid", 128), ("_", 128), ("_", 256)),
)
LAYOUTS = {
    CLASS_PORT_INFO: CLASS_PORT_INFO_LAYOUT,
    INFORM_INFO: INFORM_INFO_LAYOUT,
    NODE: NODE_RECORD,
    PORT_INFO: PORT_INFO_RECORD,
    SERVICE: SERVICE_RECORD,
    PATH: PATH_RECORD,
    MC_MEMBER: MC_MEMBER_RECORD,
}


class Request:
    """The header of a MAD, and its first record."""

    def __init__(self, datagram):
        self.datagram, self.mad, self.lid = datagram, datagram.mad, datagram.lid
        self.base, self.mgmt_class, self.version, self.method, self.status = struct.unpack_from(">BBBBH", self.mad)
        self.tid = self.mad[8:16]
        self.attribute, self.modifier = struct.unpack_from(">HxxI", self.mad, 16)
        self.rmpp_version, self.rmpp_type, flags = struct.unpack_from(">BBB", self.mad, 24)
        self.rmpp_active = bool(flags & 1)
        (self.mask,) = struct.unpack_from(">Q", self.mad, 48)
        self.layout = LAYOUTS.get(self.attribute)
        self.record = self.layout.unpack(self.mad[HEADER:]) if self.layout else {}
        self.components = self.layout.named(self.mask) if self.layout else set()

    def header(self, status):
        """The header of an answer, without RMPP."""
        header = bytearray(self.mad[:HEADER])
        header[3] = RESPONSES.get(self.method, self.method | 0x80)
        struct.pack_into(">H", header, 4, status)
        header[24:36] = bytes(12)
        struct.pack_into(">H", header, 44, (self.layout.size + 7) // 8 if self.layout else 0)
        return bytes(header)

    def matches(self, record):
        """Whether a record has the values that the component mask asks for."""
        return all(record.get(name) == self.record[name] for name in self.components if name in record)
