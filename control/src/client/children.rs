//! Asking about children, partitions, and what sysfs and ethtool set on the kernel's IPoIB.

use serde::Deserialize;

use super::{ClientError, ControlClient, Empty, selection};
use crate::api::{
    ChildAddRequest, ChildDelRequest, ChildInfo, Moderation, ModerationRequest, MtuRequest,
    PkeyTable, PkeysRequest, UmcastRequest,
};

impl ControlClient {
    /// Makes a child; gives its name.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Errno`] with the kernel's number.
    pub fn child_add(&mut self, request: &ChildAddRequest) -> Result<String, ClientError> {
        #[derive(Deserialize)]
        struct Reply {
            interface: String,
        }
        let reply: Reply = self.call("ChildAdd", request)?;
        Ok(reply.interface)
    }

    /// Removes a child with its interface.
    ///
    /// # Errors
    /// As [`ControlClient::child_add`].
    pub fn child_del(&mut self, request: &ChildDelRequest) -> Result<(), ClientError> {
        self.call("ChildDel", request).map(|Empty {}| ())
    }

    /// The children of all interfaces, or of the one named.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn children(&mut self, interface: Option<&str>) -> Result<Vec<ChildInfo>, ClientError> {
        #[derive(Deserialize)]
        struct Reply {
            children: Vec<ChildInfo>,
        }
        let reply: Reply = self.call("Children", selection(interface))?;
        Ok(reply.children)
    }

    /// Tells P_Key tables, after changing one where one is given.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn pkeys(&mut self, request: &PkeysRequest) -> Result<Vec<PkeyTable>, ClientError> {
        #[derive(Deserialize)]
        struct Reply {
            tables: Vec<PkeyTable>,
        }
        let reply: Reply = self.call("Pkeys", request)?;
        Ok(reply.tables)
    }

    /// Tells an interface's IP MTU in bytes, after changing it where one is given.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Errno`] where it cannot be.
    pub fn mtu(&mut self, interface: &str, mtu: Option<u32>) -> Result<u32, ClientError> {
        #[derive(Deserialize)]
        struct Reply {
            mtu: u32,
        }
        let request = MtuRequest {
            interface: interface.to_owned(),
            mtu,
        };
        let reply: Reply = self.call("Mtu", request)?;
        Ok(reply.mtu)
    }

    /// Tells an interface's umcast flag, after changing it where one is given.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn umcast(&mut self, interface: &str, umcast: Option<bool>) -> Result<bool, ClientError> {
        #[derive(Deserialize)]
        struct Reply {
            umcast: bool,
        }
        let request = UmcastRequest {
            interface: interface.to_owned(),
            umcast,
        };
        let reply: Reply = self.call("Umcast", request)?;
        Ok(reply.umcast)
    }

    /// Tells the completion moderation of an interface's port, after changing what is given.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn moderation(&mut self, request: &ModerationRequest) -> Result<Moderation, ClientError> {
        self.call("Moderation", request)
    }
}
