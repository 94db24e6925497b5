//! A plan as written in the file, with the positions of its tables.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{Cell, Metric, Network, Program, Quick, Server, Service, Span};

/// Not checked yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draft {
    pub(super) name: String,
    #[serde(default = "super::usual_rounds")]
    pub(super) rounds: u32,
    #[serde(default = "super::usual_warm_up")]
    pub(super) warm_up: Span,
    #[serde(default = "super::usual_duration")]
    pub(super) duration: Span,
    #[serde(default = "super::usual_ready_within")]
    pub(super) ready_within: Span,
    pub(super) server_cpus: Option<String>,
    pub(super) client_cpus: Option<String>,
    #[serde(default)]
    pub(super) shared_cpus: bool,
    #[serde(default = "super::usual_seed")]
    pub(super) seed: u64,
    pub(super) metric: Option<Metric>,
    #[serde(default)]
    pub(super) network: Network,
    pub(super) quick: Option<Quick>,
    #[serde(default)]
    pub(super) parts: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) service: Vec<Spanned<Service>>,
    #[serde(default)]
    pub(super) server: Vec<Spanned<Server>>,
    #[serde(default)]
    pub(super) program: Vec<Spanned<Program>>,
    #[serde(default)]
    pub(super) cell: Vec<Spanned<Cell>>,
}
