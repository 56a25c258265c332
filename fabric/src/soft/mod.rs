//! The software RoCEv2 fabric.
