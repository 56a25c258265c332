//! A call's parameters as a request.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Failure;
use crate::api::{
    ChildAddRequest, ChildDelRequest, Interface, Level, ManageRequest, ModeRequest,
    ModerationRequest, MtuRequest, PingRequest, PkeysRequest, Request, Selection,
    SendManagementRequest, UmcastRequest,
};

/// `None`: there is no such method.
pub(super) fn request(
    method: &str,
    parameters: &mut Parameters,
) -> Option<Result<Request, Failure>> {
    Some(match method {
        "Version" => Ok(Request::Version),
        "Show" => selection(parameters).map(Request::Show),
        "Stats" => selection(parameters).map(Request::Stats),
        "Neighbours" => interface(parameters).map(Request::Neighbours),
        "Guests" => interface(parameters).map(Request::Guests),
        "Groups" => interface(parameters).map(Request::Groups),
        "Paths" => interface(parameters).map(Request::Paths),
        "Connections" => selection(parameters).map(Request::Connections),
        "Mode" => mode(parameters).map(Request::Mode),
        "ChildAdd" => child_add(parameters).map(Request::ChildAdd),
        "ChildDel" => child_del(parameters).map(Request::ChildDel),
        "Children" => selection(parameters).map(Request::Children),
        "Pkeys" => pkeys(parameters).map(Request::Pkeys),
        "Mtu" => mtu(parameters).map(Request::Mtu),
        "Umcast" => umcast(parameters).map(Request::Umcast),
        "Moderation" => moderation(parameters).map(Request::Moderation),
        "Resources" => Ok(Request::Resources),
        "LogLevel" => parameters
            .value("level")
            .map(|level| Request::LogLevel(Level { level })),
        "Reload" => Ok(Request::Reload),
        "Monitor" => selection(parameters).map(Request::Monitor),
        "Ping" => ping(parameters).map(Request::Ping),
        "Vnics" => selection(parameters).map(Request::Vnics),
        "VnicStats" => selection(parameters).map(Request::VnicStats),
        "VnicMacs" => interface(parameters).map(Request::VnicMacs),
        "VnicMembers" => interface(parameters).map(Request::VnicMembers),
        "Manage" => manage(parameters).map(Request::Manage),
        "SendManagement" => send_management(parameters).map(Request::SendManagement),
        _ => return None,
    })
}

fn selection(parameters: &mut Parameters) -> Result<Selection, Failure> {
    Ok(Selection {
        interface: parameters.optional("interface")?,
    })
}

fn interface(parameters: &mut Parameters) -> Result<Interface, Failure> {
    Ok(Interface {
        interface: parameters.string("interface")?,
    })
}

fn mode(parameters: &mut Parameters) -> Result<ModeRequest, Failure> {
    Ok(ModeRequest {
        interface: parameters.string("interface")?,
        mode: parameters.optional("mode")?,
    })
}

fn child_add(parameters: &mut Parameters) -> Result<ChildAddRequest, Failure> {
    Ok(ChildAddRequest {
        parent: parameters.string("parent")?,
        pkey: parameters.value("pkey")?,
        name: parameters.optional("name")?,
        mode: parameters.optional("mode")?,
        mtu: parameters.optional("mtu")?,
        queues: parameters.optional("queues")?,
        netns: parameters.optional("netns")?,
    })
}

fn child_del(parameters: &mut Parameters) -> Result<ChildDelRequest, Failure> {
    Ok(ChildDelRequest {
        interface: parameters.string("interface")?,
        pkey: parameters.optional("pkey")?,
    })
}

fn pkeys(parameters: &mut Parameters) -> Result<PkeysRequest, Failure> {
    Ok(PkeysRequest {
        port: parameters.optional("port")?,
        pkeys: parameters.optional("pkeys")?,
    })
}

fn mtu(parameters: &mut Parameters) -> Result<MtuRequest, Failure> {
    Ok(MtuRequest {
        interface: parameters.string("interface")?,
        mtu: parameters.optional("mtu")?,
    })
}

fn umcast(parameters: &mut Parameters) -> Result<UmcastRequest, Failure> {
    Ok(UmcastRequest {
        interface: parameters.string("interface")?,
        umcast: parameters.optional("umcast")?,
    })
}

fn moderation(parameters: &mut Parameters) -> Result<ModerationRequest, Failure> {
    Ok(ModerationRequest {
        interface: parameters.string("interface")?,
        rx_usecs: parameters.optional("rx_usecs")?,
        rx_frames: parameters.optional("rx_frames")?,
    })
}

fn ping(parameters: &mut Parameters) -> Result<PingRequest, Failure> {
    Ok(PingRequest {
        interface: parameters.string("interface")?,
        target: parameters.string("target")?,
        count: parameters.optional("count")?,
        size: parameters.optional("size")?,
        interval_ms: parameters.optional("interval_ms")?,
        timeout_ms: parameters.optional("timeout_ms")?,
    })
}

fn manage(parameters: &mut Parameters) -> Result<ManageRequest, Failure> {
    Ok(ManageRequest {
        port: parameters.optional("port")?,
    })
}

fn send_management(parameters: &mut Parameters) -> Result<SendManagementRequest, Failure> {
    Ok(SendManagementRequest {
        port: parameters.optional("port")?,
        gid: parameters.optional("gid")?,
        qpn: parameters.optional("qpn")?,
        mad: parameters.value("mad")?,
    })
}

/// A call's parameters, taken out one by one; what is left over is an error.
pub(super) struct Parameters(Map<String, Value>);

impl Parameters {
    pub(super) fn new(parameters: Map<String, Value>) -> Parameters {
        Parameters(parameters)
    }

    fn optional<T: for<'de> Deserialize<'de>>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|_| Failure::invalid(name)),
        }
    }

    fn value<T: for<'de> Deserialize<'de>>(&mut self, name: &str) -> Result<T, Failure> {
        self.optional(name)?.ok_or_else(|| Failure::invalid(name))
    }

    pub(super) fn string(&mut self, name: &str) -> Result<String, Failure> {
        self.value(name)
    }

    pub(super) fn finish(&self) -> Result<(), Failure> {
        match self.0.keys().next() {
            Some(unknown) => Err(Failure::invalid(unknown)),
            None => Ok(()),
        }
    }
}
