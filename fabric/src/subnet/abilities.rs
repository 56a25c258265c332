//! What the subnet administrator can do. Its ClassPortInfo says whether ports may join groups as SendOnlyFullMember
//! (kernel drivers/infiniband/core/sa_query.c, `ib_sa_sendonly_fullmem_support`). The port asks before it joins the
//! first group only to send, and again when the subnet manager has changed.

use proto::{Gid, Instant};

use super::{Purpose, Subnet};
use crate::mad::sa::ClassPortInfo;
use crate::sa::{Failure, Request, Response};

/// Whether the subnet administrator has SendOnlyFullMember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendOnlyFullMember {
    /// Nobody asked.
    Unknown,
    /// The answer has not arrived.
    Asked,
    /// The answer.
    Known(bool),
}

impl Subnet {
    /// Whether the subnet administrator has SendOnlyFullMember. `None`: joins that need the answer wait for it.
    pub(super) fn has_send_only_full_member(&mut self, now: Instant) -> Option<bool> {
        if let SendOnlyFullMember::Known(answer) = self.send_only_full_member {
            return Some(answer);
        }
        if self.send_only_full_member == SendOnlyFullMember::Unknown {
            // Without room for the request, the join takes a kind that every subnet administrator has.
            let Some(_) = self.ask(now, Request::class_port_info(), Purpose::Abilities) else {
                return Some(false);
            };
            self.send_only_full_member = SendOnlyFullMember::Asked;
        }
        None
    }

    /// The subnet manager has changed. An open request goes to the new one.
    pub(super) fn forget_abilities(&mut self) {
        if let SendOnlyFullMember::Known(_) = self.send_only_full_member {
            self.send_only_full_member = SendOnlyFullMember::Unknown;
        }
    }

    /// Continues the joins that waited for the answer. Until the subnet manager changes, a subnet administrator that
    /// refuses the question or does not answer counts as one without SendOnlyFullMember, as in the kernel.
    pub(super) fn abilities_answered(&mut self, now: Instant, result: Result<Response, Failure>) {
        let info: Option<ClassPortInfo> = result.ok().and_then(|response| response.first());
        let has = info.is_some_and(|info| info.send_only_full_member());
        self.send_only_full_member = SendOnlyFullMember::Known(has);
        let waiting: Vec<Gid> = self.waiting().collect();
        for mgid in waiting {
            self.rejoin(now, mgid);
        }
    }
}
