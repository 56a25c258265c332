"""Rules that make the subnet administrator misbehave. A rule is a JSON object:

which requests: all of these that are given must be equal
    method, attribute   names as in the log, such as "Set" and "MCMemberRecord"
    lid                 of the sender
    mgid, join_state    of an MCMemberRecord
    skip, times         leave out so many requests, then apply to so many [default: 0, all]
what happens: without any of these the answer is as usual
    answer              false: no answer
    apply               false: the request changes nothing in the subnet [default: true without a status]
    status              status of the answer, without a record
    delay               seconds before the answer
    copies              number of equal answers
    set                 fields of the records in the answer, such as {"mtu": 5, "mlid": 0}
    tid, method_id      of the answer: 16 hexadecimal digits; an integer
    patch               [[offset, "hexadecimal bytes"], ...] written over the answer, or over each segment of a table
    length              the answer, or each segment, is cut to so many bytes
of a table (RMPP; segments count from 1)
    lose                segments that are sent at their repetition only
    stop                last segment that is sent
    abort               [after, type, status]: after this segment an ABORT (type 4) or STOP (type 3)
"""

import socket

WHICH = {"method": str, "attribute": str, "lid": int, "mgid": str, "join_state": int, "skip": int, "times": int}
WHAT = {
    **{"answer": bool, "apply": bool, "status": int, "delay": (int, float), "copies": int, "set": dict, "tid": str},
    **{"method_id": int, "patch": list, "length": int, "lose": list, "stop": int, "abort": list},
}


class Rule:
    def __init__(self, number, given):
        for key, value in given.items():
            kind = (WHICH | WHAT).get(key)
            if kind is None:
                raise ValueError(f"a rule has no key {key}")
            if not isinstance(value, kind):
                raise ValueError(f"{key} of a rule cannot be {value!r}")
        self.number, self.given = number, given
        self.skip, self.times = given.get("skip", 0), given.get("times")

    def takes(self, facts):
        """Whether the rule applies to a request, given what the log says about the request; counts."""
        for key in ("method", "attribute", "lid", "join_state"):
            if key in self.given and facts.get(key) != self.given[key]:
                return False
        if "mgid" in self.given and facts.get("mgid") != canonical(self.given["mgid"]):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            if self.times <= 0:
                return False
            self.times -= 1
        return True

    def get(self, key, default=None):
        return self.given.get(key, default)

    def applies(self):
        """Whether the request changes the subnet."""
        return self.get("apply", "status" not in self.given)

    def mangle(self, mad):
        """A MAD as the rule sends it."""
        mad = bytearray(mad)
        if "tid" in self.given:
            mad[8:16] = bytes.fromhex(self.given["tid"])
        if "method_id" in self.given:
            mad[3] = self.given["method_id"]
        return patched(mad, self.get("patch", []))[: self.get("length", len(mad))]


def patched(mad, patches):
    """A MAD with bytes written over it: [[offset, "hexadecimal bytes"], ...]."""
    mad = bytearray(mad)
    for offset, digits in patches:
        new = bytes.fromhex(digits)
        mad[offset : offset + len(new)] = new
    return bytes(mad)


USUAL = Rule(0, {})


class Script:
    """The first rule that takes a request applies."""

    def __init__(self):
        self.rules, self.count = [], 0

    def add(self, given):
        self.count += 1
        self.rules.append(Rule(self.count, given))
        return self.count

    def clear(self):
        self.rules = []

    def rule_for(self, facts):
        return next((rule for rule in self.rules if rule.takes(facts)), USUAL)


def canonical(address):
    """An IPv6 address in its usual spelling."""
    return socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address))
