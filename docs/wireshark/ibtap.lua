-- Wireshark dissector of what ibtap sends beside IPoIB: 16B packets of VNICs, their management, and the echo.
--
-- It is a heuristic dissector of "infiniband.payload". The Q_Key selects the first two; see vnic/src/carriage.rs.
-- Names of fields are those of the kernel: include/rdma/opa_vnic.h, drivers/infiniband/ulp/opa_vnic/opa_vnic_encap.h.
-- Tested with tshark 4.0. Usage: tshark -X lua_script:ibtap.lua -r FILE, or copy it to the folder of personal plugins.

local qkey_field = Field.new("infiniband.deth.q_key")

local QKEY_DATA = 0x0b1b0000        -- plus the number of the switch, 1 to 0xfff
local QKEY_MANAGEMENT = 0x0b1bf034
local HEADER_LEN = 20               -- of a 16B packet with the VESW id
local TRAILER_LEN = 5               -- ICRC and tail
local ETHERNET_L4 = 0x78
local MAD_HEADER_LEN = 40
local MAD_MAX = 2048

local ethernet = Dissector.get("eth_withoutfcs")

-- 16B packets: little-endian quad words.
local packet = Proto("opa_vnic", "Omni-Path VNIC packet (16B)")
local pf = {
    slid = ProtoField.uint32("opa_vnic.slid", "SLID", base.HEX),
    dlid = ProtoField.uint32("opa_vnic.dlid", "DLID", base.HEX),
    length = ProtoField.uint32("opa_vnic.length", "Length in quad words of 8 bytes", base.DEC),
    becn = ProtoField.bool("opa_vnic.becn", "BECN"),
    fecn = ProtoField.bool("opa_vnic.fecn", "FECN"),
    sc = ProtoField.uint8("opa_vnic.sc", "Service class", base.DEC),
    rc = ProtoField.uint8("opa_vnic.rc", "Routing control", base.DEC),
    l2 = ProtoField.uint8("opa_vnic.l2", "L2 type", base.DEC),
    lt = ProtoField.bool("opa_vnic.lt", "Link transfer"),
    l4 = ProtoField.uint8("opa_vnic.l4", "L4 type", base.HEX),
    pkey = ProtoField.uint16("opa_vnic.pkey", "P_Key", base.HEX),
    entropy = ProtoField.uint16("opa_vnic.entropy", "Entropy", base.HEX),
    age = ProtoField.uint8("opa_vnic.age", "Age", base.HEX),
    vesw_id = ProtoField.uint16("opa_vnic.vesw_id", "VESW id", base.DEC),
    padding = ProtoField.bytes("opa_vnic.padding", "Padding"),
    icrc = ProtoField.uint32("opa_vnic.icrc", "ICRC (0 on RoCEv2)", base.HEX),
    pad = ProtoField.uint8("opa_vnic.tail.pad", "Bytes of padding", base.DEC, nil, 0x3f),
    tail_lt = ProtoField.uint8("opa_vnic.tail.lt", "Link transfer", base.DEC, nil, 0xc0),
}
packet.fields = pf
local wrong_length = ProtoExpert.new(
    "opa_vnic.wrong_length", "The length differs from the packet", expert.group.MALFORMED, expert.severity.ERROR)
local wrong_pad = ProtoExpert.new(
    "opa_vnic.wrong_pad", "The padding exceeds 7 bytes", expert.group.MALFORMED, expert.severity.ERROR)
packet.experts = { wrong_length, wrong_pad }

-- The value of `count` bits of a quad word, from bit `first`.
local function bits(word, first, count)
    return word:rshift(first):band(UInt64(2 ^ count - 1)):tonumber()
end

function packet.dissector(tvb, pinfo, tree)
    local len = tvb:len()
    if len < HEADER_LEN + TRAILER_LEN then return 0 end
    local first, second = tvb(0, 8):le_uint64(), tvb(8, 8):le_uint64()
    local slid = bits(first, 0, 20) + bits(second, 8, 4) * 0x100000
    local dlid = bits(first, 32, 20) + bits(second, 12, 4) * 0x100000
    local length, vesw = bits(first, 20, 11), tvb(18, 2):le_uint()
    local sub = tree:add(packet, tvb(),
        string.format("Omni-Path VNIC packet (16B), SLID: 0x%06x, DLID: 0x%06x, VESW: %d", slid, dlid, vesw))
    sub:add(pf.slid, tvb(0, 10), slid)
    sub:add(pf.dlid, tvb(4, 6), dlid)
    local of_length = sub:add(pf.length, tvb(2, 2), length)
    if length * 8 ~= len then of_length:add_proto_expert_info(wrong_length) end
    sub:add(pf.becn, tvb(3, 1), bits(first, 31, 1) ~= 0)
    sub:add(pf.sc, tvb(6, 2), bits(first, 52, 5))
    sub:add(pf.rc, tvb(7, 1), bits(first, 57, 3))
    sub:add(pf.fecn, tvb(7, 1), bits(first, 60, 1) ~= 0)
    sub:add(pf.l2, tvb(7, 1), bits(first, 61, 2))
    sub:add(pf.lt, tvb(7, 1), bits(first, 63, 1) ~= 0)
    sub:add(pf.l4, tvb(8, 1))
    sub:add_le(pf.pkey, tvb(10, 2))
    sub:add_le(pf.entropy, tvb(12, 2))
    sub:add(pf.age, tvb(14, 1))
    sub:add_le(pf.vesw_id, tvb(18, 2))
    local pad = bit.band(tvb(len - 1, 1):uint(), 0x3f)
    local end_of_frame = len - TRAILER_LEN - pad
    if pad > 7 or end_of_frame < HEADER_LEN then
        sub:add(pf.pad, tvb(len - 1, 1)):add_proto_expert_info(wrong_pad)
        return len
    end
    if pad > 0 then sub:add(pf.padding, tvb(end_of_frame, pad)) end
    sub:add_le(pf.icrc, tvb(len - TRAILER_LEN, 4))
    sub:add(pf.pad, tvb(len - 1, 1))
    sub:add(pf.tail_lt, tvb(len - 1, 1))
    if end_of_frame > HEADER_LEN then
        ethernet:call(tvb(HEADER_LEN, end_of_frame - HEADER_LEN):tvb(), pinfo, tree)
    end
    -- Behind the columns of the frame.
    pinfo.cols.protocol:prepend("VNIC/")
    return len
end

-- Management: pieces of datagrams, perhaps with a MAC before them.
local ema = Proto("opa_vema", "Omni-Path VNIC management")
local methods = { [1] = "Get", [2] = "Set", [3] = "Send", [5] = "Trap", [0x81] = "GetResp" }
local attributes = {
    [0x01] = "ClassPortInfo", [0x02] = "Notice", [0x11] = "VeswPortInfo", [0x12] = "VeswPortMacEntries",
    [0x13] = "IfaceUcastMacs", [0x14] = "IfaceMcastMacs", [0x15] = "DeleteVesw",
    [0x20] = "VeswPortSummaryCounters", [0x22] = "VeswPortErrorCounters",
    [0x30] = "LidDirectory", [0x31] = "NodeInfo", [0x32] = "ManagerInfo",
}
local states = { [0] = "nop", [1] = "drop-all", [2] = "init", [3] = "forwarding" }
local statuses = { [0] = "ok", [0x0c] = "unsupported method or attribute", [0x1c] = "invalid attribute value" }
local opcodes = { [1] = "unicast MACs changed", [2] = "multicast MACs changed", [3] = "link status changed" }
local links = { [0] = "unknown", [1] = "up", [2] = "down" }
local mf = {
    counter = ProtoField.uint64("opa_vema.seal.counter", "Counter in microseconds since 1970", base.DEC),
    mac = ProtoField.bytes("opa_vema.seal.mac", "MAC (not checked)"),
    piece_length = ProtoField.uint16("opa_vema.piece.length", "Length of the message", base.DEC),
    piece_offset = ProtoField.uint16("opa_vema.piece.offset", "Offset in the message", base.DEC),
    piece_message = ProtoField.uint32("opa_vema.piece.message", "Number of the message", base.HEX),
    piece_data = ProtoField.bytes("opa_vema.piece.data", "Part of the message"),
}
local fields = {}
for _, field in pairs(mf) do table.insert(fields, field) end

-- One field for each name; the kinds are those of ProtoField.
local known = {}
local function field(name, kind, values)
    if known[name] then return end
    local full, made = "opa_vema." .. name, nil
    if kind == "ether" or kind == "ipv6" or kind == "bytes" or kind == "stringz" then
        made = ProtoField[kind](full, name)
    elseif kind == "hex16" then
        made = ProtoField.uint16(full, name, base.HEX, values)
    elseif kind == "hex32" then
        made = ProtoField.uint32(full, name, base.HEX, values)
    elseif kind == "hex64" then
        made = ProtoField.uint64(full, name, base.HEX, values)
    elseif kind == "hex8" then
        made = ProtoField.uint8(full, name, base.HEX, values)
    else
        made = ProtoField[kind](full, name, base.DEC, values)
    end
    known[name] = made
    table.insert(fields, made)
end

-- Layouts: {name, kind, bytes, values}; a name of nil is reserved. All fields are big-endian.
local SIZES = {
    uint8 = 1, hex8 = 1, uint16 = 2, hex16 = 2, uint24 = 3, uint32 = 4, hex32 = 4, uint64 = 8, hex64 = 8,
    ether = 6, ipv6 = 16,
}
local function skip(bytes) return { nil, nil, bytes } end
local function times(count, name, kind)
    local all = {}
    for i = 1, count do all[i] = { name, kind } end
    return all
end
local function join(...)
    local all = {}
    for _, list in ipairs({ ... }) do
        for _, item in ipairs(list) do table.insert(all, item) end
    end
    return all
end

local header_layout = {
    { "base_version", "hex8" }, { "mgmt_class", "hex8" }, { "class_version", "hex8" },
    { "method", "hex8", nil, methods }, { "status", "hex16", nil, statuses }, { "class_specific", "hex16" },
    { "tid", "hex64" }, { "attr_id", "hex16", nil, attributes }, skip(2), { "attr_mod", "hex32" },
    { "rmpp", "bytes", 12 }, skip(1), { "oui", "bytes", 3 },
}
local class_port_info = {
    { "base_version", "hex8" }, { "class_version", "hex8" }, { "cap_mask", "hex16" },
    { "cap_mask2_resp_time", "hex32" }, { "redirect_gid", "ipv6" }, { "redirect_tc_fl", "hex32" },
    { "redirect_lid", "hex32" }, { "redirect_sl_qp", "hex32" }, { "redirect_qkey", "hex32" },
    { "trap_gid", "ipv6" }, { "trap_tc_fl", "hex32" }, { "trap_lid", "hex32" }, { "trap_hl_qp", "hex32" },
    { "trap_qkey", "hex32" }, { "trap_pkey", "hex16" }, { "redirect_pkey", "hex16" }, { "trap_sl_rsvd", "hex8" },
    skip(3),
}
local notice = {
    { "gen_type", "hex8" }, { "oui", "bytes", 3 }, { "trap_num", "uint16" }, { "toggle_count", "hex16" },
    { "issuer_lid", "hex32" }, skip(4), { "issuer_gid", "ipv6" },
    { "fabric_id", "hex16" }, { "vesw_id", "uint16" }, { "veswport_num", "uint32" }, { "opa_port", "uint16" },
    { "veswport_index", "uint8" }, { "opcode", "uint8", nil, opcodes },
}
local vesw_port_info = join({
    { "fabric_id", "hex16" }, { "vesw_id", "uint16" }, skip(6), { "def_port_mask", "hex16" }, skip(2),
    { "pkey", "hex16" }, skip(4), { "u_mcast_dlid", "hex32" },
}, times(16, "u_ucast_dlid", "hex32"), {
    { "rc", "hex32" }, skip(56), { "eth_mtu", "uint16" }, skip(2),
    { "port_num", "uint32" }, { "eth_link_status", "uint8", nil, links }, skip(3), { "base_mac_addr", "ether" },
    { "config_state", "uint8", nil, states }, { "oper_state", "uint8", nil, states },
    { "max_mac_tbl_ent", "uint16" }, { "max_smac_ent", "uint16" }, { "mac_tbl_digest", "hex32" }, skip(4),
    { "encap_slid", "hex32" }, { "pcp_to_sc_uc", "bytes", 8 }, { "pcp_to_vl_uc", "bytes", 8 },
    { "pcp_to_sc_mc", "bytes", 8 }, { "pcp_to_vl_mc", "bytes", 8 }, { "non_vlan_sc_uc", "uint8" },
    { "non_vlan_vl_uc", "uint8" }, { "non_vlan_sc_mc", "uint8" }, { "non_vlan_vl_mc", "uint8" }, skip(48),
    { "uc_macs_gen_count", "uint16" }, { "mc_macs_gen_count", "uint16" }, skip(8),
})
local counters_of_port = { { "vp_instance", "uint16" }, { "vesw_id", "uint16" }, { "veswport_num", "uint32" } }
local function counters(names)
    local all = {}
    for name in names:gmatch("%S+") do
        table.insert(all, name == "-" and skip(8) or { name, "uint64" })
    end
    return join(counters_of_port, all)
end
local summary_counters = counters("tx_errors rx_errors tx_packets rx_packets tx_bytes rx_bytes tx_unicast " ..
    "tx_mcastbcast tx_untagged tx_vlan tx_64_size tx_65_127 tx_128_255 tx_256_511 tx_512_1023 tx_1024_1518 " ..
    "tx_1519_max rx_unicast rx_mcastbcast rx_untagged rx_vlan rx_64_size rx_65_127 rx_128_255 rx_256_511 " ..
    "rx_512_1023 rx_1024_1518 rx_1519_max")
local error_counters = counters("tx_errors rx_errors - tx_smac_filt - - - tx_dlid_zero - tx_logic - " ..
    "tx_drop_state rx_bad_veswid - rx_runt rx_oversize - rx_eth_down rx_drop_state rx_logic")
local mac_list = {
    { "start_idx", "uint16" }, { "num_macs_in_msg", "uint16" }, { "tot_macs_in_lst", "uint16" },
    { "gen_count", "uint16" }, entry = { { "entry", "ether" } }, count = 2,
}
-- `count` is the offset of the number of entries, `width` its bytes.
local layouts = {
    [0x01] = class_port_info, [0x02] = notice, [0x11] = vesw_port_info, [0x15] = vesw_port_info,
    [0x12] = {
        { "offset", "uint16" }, { "num_entries", "uint16" }, { "mac_tbl_digest", "hex32" },
        entry = { { "mac_addr", "ether" }, { "mac_addr_mask", "ether" }, { "dlid_sd", "hex32" } }, count = 2,
    },
    [0x13] = mac_list, [0x14] = mac_list, [0x20] = summary_counters, [0x22] = error_counters,
    [0x30] = {
        { "start", "uint16" }, { "total", "uint16" }, { "count", "uint16" }, skip(2), { "digest", "hex32" }, skip(4),
        entry = { { "lid", "hex32" }, skip(1), { "qpn", "uint24" }, { "gid", "ipv6" } }, count = 4,
    },
    [0x31] = {
        { "guid", "hex64" }, { "incarnation", "hex64" }, { "payload_max", "uint16" }, { "port", "uint8" },
        { "ports", "uint8" }, { "first", "uint8" }, { "next", "uint8" }, skip(2), { "description", "stringz", 64 },
        entry = { { "index", "uint8" }, { "qpn", "uint24" }, { "name", "stringz", 16 } }, count = 19, width = 1,
    },
    [0x32] = {
        { "id", "hex64" }, { "priority", "uint8" }, { "active", "uint8" }, skip(2), { "lease_ms", "uint32" },
        { "gid", "ipv6" },
    },
}
local function define(layout)
    for _, item in ipairs(layout) do
        if item[1] then field(item[1], item[2], item[4]) end
    end
    if layout.entry then define(layout.entry) end
end
define(header_layout)
for _, layout in pairs(layouts) do define(layout) end
ema.fields = fields

-- Adds the fields of a layout from `at`; returns the offset behind them. Stops at the end of the bytes: ibtap omits
-- the unused end of an attribute.
local function show(layout, tvb, at, tree)
    for _, item in ipairs(layout) do
        local size = item[3] or SIZES[item[2]]
        if at + size > tvb:len() then return tvb:len() end
        if item[1] then tree:add(known[item[1]], tvb(at, size)) end
        at = at + size
    end
    return at
end

local function management(tvb, pinfo, tree)
    local header = tree:add(ema, tvb(0, MAD_HEADER_LEN), "Header")
    show(header_layout, tvb, 0, header)
    local method, id = tvb(3, 1):uint(), tvb(16, 2):uint()
    local name = attributes[id] or string.format("attribute 0x%04x", id)
    local text = (methods[method] or string.format("method 0x%02x", method)) .. " " .. name
    local status = tvb(4, 2):uint()
    if status ~= 0 then text = text .. ": " .. (statuses[status] or string.format("status 0x%04x", status)) end
    pinfo.cols.info:set("VNIC management: " .. text)
    tree:append_text(": " .. text)
    local layout = layouts[id]
    if not layout or status ~= 0 or tvb:len() <= MAD_HEADER_LEN then return end
    local data = tree:add(ema, tvb(MAD_HEADER_LEN), name)
    local at = show(layout, tvb, MAD_HEADER_LEN, data)
    -- A Get has no entries: its count is the number of entries that it asks for.
    if not layout.entry or method == 1 then return end
    local place = MAD_HEADER_LEN + layout.count
    if place + 2 > tvb:len() then return end
    for i = 1, tvb(place, layout.width or 2):uint() do
        if at >= tvb:len() then return end
        local entry = data:add(ema, tvb(at), "Entry " .. i)
        local behind = show(layout.entry, tvb, at, entry)
        entry:set_len(behind - at)
        at = behind
    end
end

-- Pieces of messages, by sender and number; a message has up to 2 KiB. One table for a capture.
local messages = {}
function ema.init() messages = {} end

local function joined(key, offset, length, bytes)
    local message = messages[key]
    if not message or message.length ~= length then
        message = { length = length, have = 0, pieces = {} }
        messages[key] = message
    end
    if not message.pieces[offset] then
        message.pieces[offset] = bytes
        message.have = message.have + bytes:len()
    end
    if message.have < length then return nil end
    local all, at = ByteArray.new(), 0
    while at < length and message.pieces[at] do
        all:append(message.pieces[at])
        at = at + message.pieces[at]:len()
    end
    return at == length and all or nil
end

function ema.dissector(tvb, pinfo, tree)
    local sub = tree:add(ema, tvb())
    local at = 0
    pinfo.cols.protocol:set("VNIC management")
    if tvb(0, 1):uint() == 2 then
        if tvb:len() < 44 then return 0 end
        sub:add(mf.counter, tvb(8, 8))
        sub:add(mf.mac, tvb(16, 16))
        at = 32
    end
    local length, offset, number = tvb(at + 2, 2):uint(), tvb(at + 4, 2):uint(), tvb(at + 8, 4):uint()
    sub:add(mf.piece_length, tvb(at + 2, 2))
    sub:add(mf.piece_offset, tvb(at + 4, 2))
    sub:add(mf.piece_message, tvb(at + 8, 4))
    if at + 12 >= tvb:len() or offset >= length then return tvb:len() end
    -- RoCEv2 pads a payload to 4 bytes.
    local rest = tvb(at + 12, math.min(tvb:len() - at - 12, length - offset))
    if offset == 0 and rest:len() == length and length >= MAD_HEADER_LEN then
        management(rest:tvb(), pinfo, sub)
        return tvb:len()
    end
    sub:add(mf.piece_data, rest)
    pinfo.cols.info:set(string.format("VNIC management: bytes %d to %d of %d of message 0x%08x",
        offset, offset + rest:len() - 1, length, number))
    if length > MAD_MAX then return tvb:len() end
    local whole = joined(tostring(pinfo.src) .. "/" .. number, offset, length, rest:bytes())
    if whole and length >= MAD_HEADER_LEN and offset + rest:len() == length then
        management(whole:tvb("Joined message"), pinfo, sub)
    end
    return tvb:len()
end

-- The echo: an IPoIB payload of the first EtherType for local experiments.
local echo = Proto("ibtap_echo", "ibtap echo")
local operations = { [1] = "request", [2] = "reply" }
local ef = {
    operation = ProtoField.uint8("ibtap_echo.operation", "Operation", base.DEC, operations),
    id = ProtoField.uint16("ibtap_echo.id", "Identifier", base.DEC),
    seq = ProtoField.uint32("ibtap_echo.seq", "Sequence number", base.DEC),
    stamp = ProtoField.uint64("ibtap_echo.stamp", "Time stamp of the requester", base.DEC),
    target = ProtoField.ipv6("ibtap_echo.target", "GID of the requested peer (::: any)"),
    padding = ProtoField.bytes("ibtap_echo.padding", "Padding"),
}
echo.fields = ef

function echo.dissector(tvb, pinfo, tree)
    local sub = tree:add(echo, tvb())
    sub:add(ef.operation, tvb(8, 1))
    sub:add(ef.id, tvb(10, 2))
    sub:add(ef.seq, tvb(12, 4))
    sub:add(ef.stamp, tvb(16, 8))
    sub:add(ef.target, tvb(24, 16))
    if tvb:len() > 40 then sub:add(ef.padding, tvb(40)) end
    pinfo.cols.protocol:set("ibtap echo")
    pinfo.cols.info:set(string.format("ibtap echo %s, id %d, seq %d",
        operations[tvb(8, 1):uint()] or "unknown", tvb(10, 2):uint(), tvb(12, 4):uint()))
    return tvb:len()
end

-- The Q_Key of the packet; nil on a connection.
local function qkey()
    local found = qkey_field()
    -- The value is an UInt64, or a number in some versions.
    return found and tonumber(tostring(found.value)) or nil
end

packet:register_heuristic("infiniband.payload", function(tvb, pinfo, tree)
    local key = qkey()
    local has_key = key and key > QKEY_DATA and key <= QKEY_DATA + 0xfff
    if not has_key or tvb:len() < HEADER_LEN + TRAILER_LEN or tvb:len() % 8 ~= 0 then return false end
    -- The broadcast group of IPoIB has 0x0b1b, a Q_Key of no switch; the type must fit, too.
    if tvb(8, 1):uint() ~= ETHERNET_L4 or bit.band(tvb(7, 1):uint(), 0x60) ~= 0x40 then return false end
    packet.dissector(tvb, pinfo, tree)
    return true
end)

ema:register_heuristic("infiniband.payload", function(tvb, pinfo, tree)
    local version = tvb:len() >= 12 and tvb(0, 1):uint()
    if qkey() ~= QKEY_MANAGEMENT or (version ~= 1 and version ~= 2) then return false end
    return ema.dissector(tvb, pinfo, tree) > 0
end)

echo:register_heuristic("infiniband.payload", function(tvb, pinfo, tree)
    if tvb:len() < 40 or tvb(0, 2):uint() ~= 0x88b5 or tvb(4, 4):string() ~= "ibt1" then return false end
    echo.dissector(tvb, pinfo, tree)
    return true
end)
