#!/bin/sh
# Script of a DHCP client for its events: adds the addresses to the interface or removes them, and writes
# "EVENT ADDRESS" to a file beside itself. udhcpc(8) has the event in $1, dhclient-script(8) in $reason. It
# touches only the interface.

event=${reason:-$1}
case $event in
bound | renew) address=$ip/${subnet:-255.255.255.0} ;;
BOUND | RENEW | REBIND | REBOOT) address=$new_ip_address/${new_subnet_mask:-255.255.255.0} ;;
BOUND6 | RENEW6 | REBIND6) address=$new_ip6_address/${new_ip6_prefixlen:-128} ;;
deconfig | EXPIRE | FAIL | RELEASE | STOP) ip -4 addr flush dev "$interface" scope global ;;
EXPIRE6 | RELEASE6 | STOP6 | DEPREF6)
    ip -6 addr del "$old_ip6_address/${old_ip6_prefixlen:-128}" dev "$interface" ;;
PREINIT | PREINIT6) ip link set "$interface" up ;;
esac
[ -z "$address" ] || ip addr replace "$address" dev "$interface"
# The address is configured before the line appears.
echo "$event ${address%/*}" >>"${0%.sh}.log"
