//! What the integration tests share: raw clients, a server in this process, the cases.
