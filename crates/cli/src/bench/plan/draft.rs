//! A plan as written in the file, with the positions of its tables.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

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

impl Draft {
    /// Reads a plan; fields of `[cell_defaults]` are added to each cell that lacks them.
    ///
    /// # Errors
    /// It is not TOML of this shape.
    pub(super) fn read(text: &str) -> Result<Draft, toml::de::Error> {
        let mut plan = DeTable::parse(text)?;
        if let Some(defaults) = plan.get_mut().remove("cell_defaults") {
            inherit(&mut plan, defaults)?;
        }
        Draft::deserialize(Deserializer::from(plan))
    }
}

fn inherit<'a>(
    plan: &mut Spanned<DeTable<'a>>,
    defaults: Spanned<DeValue<'a>>,
) -> Result<(), toml::de::Error> {
    let DeValue::Table(defaults) = defaults.into_inner() else {
        return Err(serde::de::Error::custom(
            "cell_defaults must be a table; write [cell_defaults], and under it the fields that cells have in common",
        ));
    };
    let Some(DeValue::Array(cells)) = plan.get_mut().get_mut("cell").map(Spanned::get_mut) else {
        return Ok(());
    };
    for cell in cells.iter_mut() {
        let DeValue::Table(cell) = cell.get_mut() else { continue };
        for (field, value) in &defaults {
            if !cell.contains_key(field.get_ref().as_ref()) {
                cell.insert(field.clone(), value.clone());
            }
        }
    }
    Ok(())
}
