//! Requests about children, partitions and moderation.

use control::ControlClient;
use control::api::{
    ChildAddRequest, ChildDelRequest, Moderation, ModerationRequest, PkeysRequest, Selection,
    methods,
};
use serde::Serialize;

use crate::cli::{ChildAddArgs, ChildArgs, ChildVerb, CoalesceArgs, PkeyArgs, PkeyVerb};
use crate::output::{Failure, Format, print};
use crate::text;

/// `ibtap child`.
pub fn child(format: Format, client: ControlClient, args: &ChildArgs) -> Result<(), Failure> {
    let verb = args.verb.as_ref();
    match verb.unwrap_or(&ChildVerb::List { parent: None }) {
        ChildVerb::Add(args) => add(format, client, args),
        ChildVerb::Del { interface, pkey } => {
            let request = ChildDelRequest {
                interface: interface.clone(),
                pkey: pkey.map(|pkey| pkey.full().get().into()),
            };
            del(format, client, &request)
        }
        ChildVerb::List { parent } => list(format, client, parent.as_deref()),
    }
}

fn add(format: Format, mut client: ControlClient, args: &ChildAddArgs) -> Result<(), Failure> {
    let interface = client.call(
        methods::CHILD_ADD,
        &ChildAddRequest {
            parent: args.parent.clone(),
            pkey: args.pkey.get().into(),
            name: args.name.clone(),
            mode: args.mode,
            mtu: args.mtu,
            queues: args.queues.and_then(|queues| u32::try_from(queues).ok()),
            netns: args.netns.clone(),
        },
    )?;
    print(format, &[Added { interface }], |added| {
        added.iter().map(|a| format!("{}\n", a.interface)).collect()
    })
}

/// The object of `ibtap child add`.
#[derive(Serialize)]
struct Added {
    interface: String,
}

/// Removes a child. Only a JSON object is printed.
fn del(
    format: Format,
    mut client: ControlClient,
    request: &ChildDelRequest,
) -> Result<(), Failure> {
    client.call(methods::CHILD_DEL, request)?;
    print(format, &[request], |_| String::new())
}

fn list(format: Format, mut client: ControlClient, parent: Option<&str>) -> Result<(), Failure> {
    print(
        format,
        &client.call(methods::CHILDREN, &Selection::of(parent))?,
        text::children,
    )
}

/// `ibtap pkey`. A change prints only JSON objects.
pub fn pkey(format: Format, mut client: ControlClient, args: &PkeyArgs) -> Result<(), Failure> {
    let (request, changes) = match &args.verb {
        None => (PkeysRequest::default(), false),
        Some(PkeyVerb::List { port }) => {
            let port = port.clone();
            (PkeysRequest { port, pkeys: None }, false)
        }
        Some(PkeyVerb::Set { port, table }) => {
            let (port, pkeys) = (Some(port.clone()), Some(table.0.clone()));
            (PkeysRequest { port, pkeys }, true)
        }
    };
    print(
        format,
        &client.call(methods::PKEYS, &request)?,
        |tables| match changes {
            true => String::new(),
            false => text::pkeys(tables),
        },
    )
}

/// `ibtap coalesce`. A change prints only a JSON object.
pub fn coalesce(
    format: Format,
    mut client: ControlClient,
    args: &CoalesceArgs,
) -> Result<(), Failure> {
    let moderation = client.call(
        methods::MODERATION,
        &ModerationRequest {
            interface: args.interface.clone(),
            rx_usecs: args.rx_usecs,
            rx_frames: args.rx_frames,
        },
    )?;
    let changes = args.rx_usecs.is_some() || args.rx_frames.is_some();
    let object = ModerationOf {
        interface: &args.interface,
        moderation,
    };
    print(format, &[object], |_| match changes {
        true => String::new(),
        false => text::moderation(moderation),
    })
}

/// The object of `ibtap coalesce`.
#[derive(Serialize)]
struct ModerationOf<'a> {
    interface: &'a str,
    #[serde(flatten)]
    moderation: Moderation,
}
