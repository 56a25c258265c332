//! `mckey`: datagrams to a multicast group, in the partition and with the Q_Key of rdma_cm.

use anyhow::{Result, ensure};
use control::output::print_line;
use fabric::{Gid, QKey, Qpn};

use super::cli::Mckey;
use super::end::End;
use super::payload::{Expected, ours};

/// RDMA_UDP_QKEY (include/rdma/rdma_cm.h).
pub const QKEY: QKey = QKey::new(0x0123_4567);

/// Runs the sender or the receiver.
///
/// # Errors
/// See [`super::run`].
pub fn run(args: &Mckey) -> Result<()> {
    let group = Gid::from(args.group);
    ensure!(
        group.is_multicast(),
        "{} is not a multicast address",
        args.group
    );
    let mut end = End::open(&args.common)?;
    if args.send {
        send(&mut end, group, args)
    } else {
        receive(&mut end, group, args)
    }
}

fn send(end: &mut End, group: Gid, args: &Mckey) -> Result<()> {
    let (size, count) = (args.common.size as usize, args.common.count);
    let from = end.create_ud(QKEY, size)?;
    let to = end.destination(group, Qpn::MULTICAST, QKEY)?;
    for number in 0..count {
        end.send_from(&from, &to, &ours(number, size))?;
    }
    print_line(format_args!(
        "{count} datagrams of {size} bytes sent to {group}"
    ))?;
    Ok(())
}

fn receive(end: &mut End, group: Gid, args: &Mckey) -> Result<()> {
    let (size, count) = (args.common.size as usize, args.common.count);
    let endpoint = end.create_ud(QKEY, size)?;
    end.attach(endpoint.id, group)?;
    print_line(format_args!("joined {group}, QPN {}", endpoint.qpn))?;
    let mut expected = Expected::repeated(size);
    let mut sender = None;
    for number in 0..count {
        let got = match sender {
            None => end.first_datagram()?,
            Some(_) => end.datagram(&format_args!("datagram {number} of {count}"))?,
        };
        ensure!(
            got.to == group,
            "received a datagram to {} instead of {group}",
            got.to
        );
        let (qpn, gid) = *sender.get_or_insert((got.qpn, got.gid));
        got.is_from(qpn, gid)?;
        expected.check(&got.payload)?;
    }
    if let Some((qpn, gid)) = sender {
        print_line(format_args!(
            "{count} datagrams of {size} bytes received from QPN {qpn} of {gid}, all correct"
        ))?;
    }
    Ok(())
}
