//! ipoib
