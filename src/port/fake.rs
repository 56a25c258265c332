//! A fabric port without a fabric.

use std::io::PipeReader;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use fabric::port::{
    Capabilities, DeviceAttributes, FabricError, PortAttributes, Resources, UdEndpoint, UdInit,
};
use fabric::subnet::{LocalPort, Subnet, SubnetInfo};
use fabric::{GroupParameters, Joined, PKey, Port, PortEvent, Worker};
use proto::{EndpointId, Gid, Guid, IbMtu, PortState, QKey, Qpn, Services};

/// What a test sets and reads of a [`FakePort`].
#[derive(Debug)]
pub struct State {
    /// The answer to each join.
    pub answer: Joined,
    /// The groups of all joins, in their order.
    pub joins: Vec<Gid>,
    /// The changes of Q_Keys, in their order.
    pub qkeys: Vec<(EndpointId, QKey)>,
}

/// A port that is active and has no worker. It answers each join as [`State::answer`] says.
pub struct FakePort {
    state: Arc<Mutex<State>>,
    endpoints: Vec<UdEndpoint>,
    pkeys: Vec<PKey>,
    subnet: Option<Subnet>,
    /// Never readable, and never closed.
    events: (PipeReader, std::io::PipeWriter),
}

impl FakePort {
    /// A port whose joins succeed at once.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn new() -> std::io::Result<FakePort> {
        let parameters = GroupParameters::unadministered(QKey::new(0x0b1b));
        let state = State {
            answer: Joined::Now(parameters),
            joins: Vec::new(),
            qkeys: Vec::new(),
        };
        Ok(FakePort {
            state: Arc::new(Mutex::new(state)),
            endpoints: Vec::new(),
            pkeys: vec![PKey::DEFAULT],
            subnet: None,
            events: std::io::pipe()?,
        })
    }

    /// The port, on a subnet whose administrator has not answered yet.
    pub fn on_subnet(self) -> FakePort {
        let local = LocalPort {
            gid: self.attributes().gid,
            mtu: IbMtu::B4096,
            kernel_pkeys: Vec::new(),
        };
        FakePort {
            subnet: Some(Subnet::new(local, [0; 2], true)),
            ..self
        }
    }

    /// What a test sets and reads while the daemon has the port.
    pub fn state(&self) -> Arc<Mutex<State>> {
        self.state.clone()
    }

    fn endpoint(&self, id: EndpointId) -> Option<&UdEndpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.id == id)
    }
}

impl Port for FakePort {
    fn attributes(&self) -> PortAttributes {
        PortAttributes {
            name: "fake".into(),
            state: PortState::Active,
            state_reason: None,
            gid: Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            guid: Guid([0, 0, 0, 0, 0, 0, 0, 1]),
            lid: None,
            pkeys: self.pkeys.clone(),
            ud_payload_max: 4096,
            underlay_mtu: None,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            lanes: 1,
            first_receives: true,
            message_train: 0,
            multicast: true,
            groups_max: 16,
            group_requests: 16,
            message_max: 0,
            services: Services::Any,
            pkeys_settable: true,
        }
    }

    fn device(&self) -> DeviceAttributes {
        DeviceAttributes::default()
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.0.as_fd()
    }

    fn process(&mut self) -> Vec<PortEvent> {
        Vec::new()
    }

    fn take_workers(&mut self) -> Vec<Box<dyn Worker>> {
        Vec::new()
    }

    fn create_ud(&mut self, init: UdInit) -> Result<UdEndpoint, FabricError> {
        let number = self.endpoints.len() as u32 + 1;
        let endpoint = UdEndpoint {
            id: EndpointId(number),
            qpn: init.qpn.unwrap_or(Qpn::new(0x100 + number)),
            pkey: self
                .pkeys
                .iter()
                .copied()
                .find(|key| key.full() == init.pkey.full()),
        };
        self.endpoints.push(endpoint);
        Ok(endpoint)
    }

    fn destroy_ud(&mut self, id: EndpointId) -> Result<(), FabricError> {
        let before = self.endpoints.len();
        self.endpoints.retain(|endpoint| endpoint.id != id);
        match self.endpoints.len() == before {
            true => Err(FabricError::NoSuchEndpoint(id)),
            false => Ok(()),
        }
    }

    fn set_peers(&mut self, _: Vec<IpAddr>) -> Result<(), FabricError> {
        Ok(())
    }

    fn set_pkeys(&mut self, pkeys: Vec<PKey>) -> Result<Vec<EndpointId>, FabricError> {
        self.pkeys = pkeys;
        Ok(Vec::new())
    }

    fn set_qkey(&mut self, id: EndpointId, qkey: QKey) -> Result<(), FabricError> {
        match (self.endpoint(id), self.state.lock()) {
            (None, _) => Err(FabricError::NoSuchEndpoint(id)),
            (_, Err(_)) => Err(FabricError::Unusable("the test has ended".into())),
            (_, Ok(mut state)) => {
                state.qkeys.push((id, qkey));
                Ok(())
            }
        }
    }

    fn endpoint_pkey(&self, id: EndpointId) -> Option<PKey> {
        self.endpoint(id)?.pkey
    }

    fn endpoint_qpn(&self, id: EndpointId) -> Option<Qpn> {
        self.endpoint(id).map(|endpoint| endpoint.qpn)
    }

    fn change_groups(
        &mut self,
        id: EndpointId,
        joins: &[Gid],
        _: &[Gid],
    ) -> Result<Vec<Joined>, FabricError> {
        if self.endpoint(id).is_none() {
            return Err(FabricError::NoSuchEndpoint(id));
        }
        let Ok(mut state) = self.state.lock() else {
            return Err(FabricError::Unusable("the test has ended".into()));
        };
        state.joins.extend(joins);
        Ok(vec![state.answer.clone(); joins.len()])
    }

    fn resources(&self) -> Resources {
        Resources::default()
    }

    fn subnet(&self) -> Option<SubnetInfo<'_>> {
        self.subnet.as_ref().map(|subnet| SubnetInfo {
            administrator: None,
            subnet,
        })
    }
}
