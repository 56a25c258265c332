//! Children, P_Key tables and moderation.

use control::api::{ChildInfo, Moderation, PkeyTable};
use fabric::PKey;

use control::aligned_text::columns;

/// `ibtap child list`: a table.
pub fn children(children: &[ChildInfo]) -> String {
    let rows = children.iter().map(|c| {
        let pkey = match c.entry {
            // Packets carry the entry of the table.
            Some(entry) if entry != c.pkey => format!("{} ({entry})", c.pkey),
            _ => c.pkey.to_string(),
        };
        let carrier = match (&c.reason, c.carrier) {
            (_, true) => "on".to_owned(),
            (Some(reason), false) => format!("off: {reason}"),
            (None, false) => "off".to_owned(),
        };
        [
            c.name.clone(),
            c.parent.clone(),
            pkey,
            c.mode.to_string(),
            c.mtu.to_string(),
            c.netns.clone().unwrap_or_else(|| "-".into()),
            carrier,
        ]
    });
    columns(
        ["NAME", "PARENT", "P_KEY", "MODE", "MTU", "NETNS", "CARRIER"],
        rows,
    )
}

/// `ibtap pkey`: a table of the valid entries.
pub fn pkeys(tables: &[PkeyTable]) -> String {
    let rows = tables.iter().flat_map(|table| {
        let source = match (table.settable, table.automatic) {
            (false, _) => "device",
            (true, true) => "auto",
            (true, false) => "set",
        };
        let used = |(_, pkey): &(usize, &PKey)| pkey.is_valid();
        let entries = table.pkeys.iter().enumerate().filter(used);
        entries.map(move |(index, pkey)| {
            [
                table.port.clone(),
                index.to_string(),
                pkey.to_string(),
                membership(*pkey).to_owned(),
                source.to_owned(),
            ]
        })
    });
    columns(["PORT", "INDEX", "P_KEY", "MEMBER", "TABLE"], rows)
}

fn membership(pkey: PKey) -> &'static str {
    if pkey.is_full() { "full" } else { "limited" }
}

/// `ibtap coalesce`: the format of `ethtool -c`.
pub fn moderation(moderation: Moderation) -> String {
    format!(
        "rx-usecs: {}\nrx-frames: {}\n",
        moderation.rx_usecs, moderation.rx_frames
    )
}
