//! How do bytes move on this machine?
