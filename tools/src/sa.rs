//! `ibtap sa`: asks subnet administration, in the style of saquery.

mod inform;
mod records;
mod session;
mod sminfo;

use control::exit::{EXIT_OK, EXIT_USAGE};
use control::output::complain;
use fabric::mad::method::GET_TABLE;
use fabric::mad::sa::{
    self, McMemberRecord, NodeRecord, PathRecord, Record, ServiceRecord, mc_member, node, path,
    service,
};
use fabric::sa::{Request, Response};
use fabric::{Gid, Lid, PKey};

use crate::cli::{End, PathArgs, SaArgs, SaVerb};
use crate::output::{Failure, Format, after, print};
use records::Dump;
use session::Session;

/// Asks, prints the answer, and returns the exit status: 1 if there are no records.
pub fn run(args: &SaArgs, format: Format) -> Result<u8, Failure> {
    match &args.verb {
        SaVerb::Mcmember {
            mgid,
            lid,
            gid,
            pkey,
        } => {
            let request = groups(*mgid, *lid, *gid, *pkey);
            ask(args, format, &request, records::group)
        }
        SaVerb::Path(wanted) => paths(args, wanted, format),
        SaVerb::Node { lid, guid, name } => {
            let mut wanted = Wanted::<NodeRecord>::default();
            wanted.set(*lid, node::LID, |r, lid| r.lid = lid);
            wanted.set(*guid, node::PORT_GUID, |r, guid| r.port_guid = guid);
            wanted.set(name.as_deref(), node::DESCRIPTION, |r, name| {
                r.description = ServiceRecord::name_bytes(name);
            });
            ask(args, format, &wanted.request(), records::node)
        }
        SaVerb::Service {
            name,
            id,
            gid,
            pkey,
        } => {
            let mut wanted = Wanted::<ServiceRecord>::default();
            wanted.set(name.as_deref(), service::NAME, |r, name| {
                r.name = ServiceRecord::name_bytes(name);
            });
            wanted.set(*id, service::ID, |r, id| r.id = id);
            wanted.set(*gid, service::GID, |r, gid| r.gid = gid);
            wanted.set(*pkey, service::PKEY, |r, pkey| r.pkey = pkey);
            ask(args, format, &wanted.request(), records::service)
        }
        SaVerb::Sminfo => sminfo::run(args, format),
        SaVerb::Inform => inform::run(args, format),
    }
}

/// A record with the wanted fields, and their component mask.
struct Wanted<R> {
    record: R,
    mask: u64,
}

impl<R: Record> Default for Wanted<R> {
    fn default() -> Wanted<R> {
        // A record of zeros: each type has one.
        let zeros = vec![0; R::LEN];
        Wanted {
            record: R::parse(&zeros).expect("the length is the record's"),
            mask: 0,
        }
    }
}

impl<R: Record> Wanted<R> {
    fn set<V>(&mut self, value: Option<V>, bit: u64, set: impl FnOnce(&mut R, V)) {
        if let Some(value) = value {
            set(&mut self.record, value);
            self.mask |= bit;
        }
    }

    fn request(&self) -> Request {
        Request::new(GET_TABLE, self.mask, &self.record)
    }
}

fn groups(mgid: Option<Gid>, lid: Option<Lid>, gid: Option<Gid>, pkey: Option<PKey>) -> Request {
    let mut wanted = Wanted::<McMemberRecord>::default();
    wanted.set(mgid, mc_member::MGID, |r, mgid| r.mgid = mgid);
    wanted.set(lid, mc_member::MLID, |r, lid| r.mlid = lid);
    wanted.set(gid, mc_member::PORT_GID, |r, gid| r.port_gid = gid);
    wanted.set(pkey, mc_member::PKEY, |r, pkey| r.pkey = pkey);
    wanted.request()
}

fn paths(args: &SaArgs, wanted: &PathArgs, format: Format) -> Result<u8, Failure> {
    let mut session = Session::open(args)?;
    let from = wanted.source.as_ref().or(wanted.from.as_ref());
    let to = wanted.destination.as_ref().or(wanted.to.as_ref());
    let mut query = Wanted::<PathRecord>::default();
    match from.map(|end| locate(&mut session, end)).transpose()? {
        Some(Located::Lid(lid)) => query.set(Some(lid), path::SLID, |r, lid| r.slid = lid),
        Some(Located::Gid(gid)) => query.set(Some(gid), path::SGID, |r, gid| r.sgid = gid),
        None => {}
    }
    match to.map(|end| locate(&mut session, end)).transpose()? {
        Some(Located::Lid(lid)) => query.set(Some(lid), path::DLID, |r, lid| r.dlid = lid),
        Some(Located::Gid(gid)) => query.set(Some(gid), path::DGID, |r, gid| r.dgid = gid),
        None => {}
    }
    query.set(wanted.pkey, path::PKEY, |r, pkey| r.pkey = pkey);
    let response = session.ask(query.request())?;
    show(format, &response, records::path)
}

/// A port in terms of subnet administration.
enum Located {
    Lid(Lid),
    Gid(Gid),
}

fn locate(session: &mut Session, end: &End) -> Result<Located, Failure> {
    let name = match end {
        End::Lid(lid) => return Ok(Located::Lid(*lid)),
        End::Gid(gid) => return Ok(Located::Gid(*gid)),
        End::Name(name) => name,
    };
    let mut wanted = Wanted::<NodeRecord>::default();
    wanted.set(Some(&**name), node::DESCRIPTION, |r, name| {
        r.description = ServiceRecord::name_bytes(name);
    });
    let response = session.ask(wanted.request())?;
    match response.first::<NodeRecord>() {
        Some(node) => Ok(Located::Lid(node.lid)),
        None => Err(Failure::Usage(format!(
            "no node is called {name:?}: ibtap sa node lists the nodes"
        ))),
    }
}

fn ask<R: Record>(
    args: &SaArgs,
    format: Format,
    request: &Request,
    dump: fn(&R) -> Dump,
) -> Result<u8, Failure> {
    let response = Session::open(args)?.ask(*request)?;
    show(format, &response, dump)
}

fn show<R: Record>(
    format: Format,
    response: &Response,
    dump: fn(&R) -> Dump,
) -> Result<u8, Failure> {
    let dumps: Vec<Dump> = response.all::<R>().map(|record| dump(&record)).collect();
    let printed = print(format, &dumps, |dumps| {
        dumps.iter().map(Dump::text).collect()
    });
    if response.truncated {
        complain(
            "ibtap",
            "records may be missing: ibsim delivers only the first 168 bytes of an answer; ask for fewer \
             records",
        );
    }
    if dumps.is_empty() {
        complain("ibtap", "there is no such record");
        return after(printed, EXIT_USAGE);
    }
    after(printed, EXIT_OK)
}

/// Whether a status says that there are no records.
const fn is_nothing(status: u16) -> bool {
    status == sa::status::NO_RECORDS
}
