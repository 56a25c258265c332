//! rtnl
