//! The plan that makes the load, with the programs that run under it.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// A plan of `highwater bench`, and the server in it whose arguments are used. `bench` checks the rest.
pub(super) struct Load {
    plan: Table,
    server: Table,
}

impl Load {
    /// Reads the plan.
    ///
    /// # Errors
    /// There is no such plan, or no such server in it.
    pub(super) fn read(path: &Path, server: Option<&str>) -> Result<Load, String> {
        let shown = path.display();
        let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        Load::parse(&text, server).map_err(|problem| format!("{shown}: {problem}"))
    }

    pub(super) fn parse(text: &str, server: Option<&str>) -> Result<Load, String> {
        let mut plan: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let servers = match plan.remove("server") {
            Some(Value::Array(servers)) => servers,
            _ => return Err("no [[server]]; write one, as docs/benchmarks.md says".to_owned()),
        };
        let servers: Vec<Table> =
            servers.into_iter().filter_map(|server| server.try_into().ok()).collect();
        let name = |server: &Table| server.get("name").and_then(Value::as_str).map(str::to_owned);
        let known: Vec<String> = servers.iter().filter_map(name).collect();
        let wanted = |of: &Table| server.is_none_or(|server| name(of).as_deref() == Some(server));
        let server = servers.into_iter().find(wanted).ok_or_else(|| {
            format!("no server {}; it has {}", server.unwrap_or_default(), known.join(", "))
        })?;
        match server.get("command") {
            Some(Value::Array(command)) if !command.is_empty() => Ok(Load { plan, server }),
            _ => Err("the server has no command".to_owned()),
        }
    }

    /// The plan as `name`, with each of `programs` as a server, all started with the same arguments. Cells that name
    /// servers are for all of them.
    pub(super) fn text(
        &self,
        name: &str,
        rounds: Option<u32>,
        programs: &[(&str, &Path)],
    ) -> Result<String, String> {
        let mut plan = self.plan.clone();
        plan.insert("name".into(), name.into());
        if let Some(rounds) = rounds {
            plan.insert("rounds".into(), i64::from(rounds).into());
        }
        if let Some(Value::Array(cells)) = plan.get_mut("cell") {
            cells.iter_mut().filter_map(Value::as_table_mut).for_each(|cell| {
                cell.remove("servers");
            });
        }
        if let Some(Value::Table(defaults)) = plan.get_mut("cell_defaults") {
            defaults.remove("servers");
        }
        let mut servers = Vec::new();
        for (name, program) in programs {
            let program = program.to_str().ok_or("--out: a path must be UTF-8")?;
            // Without a slash it would be looked for in PATH.
            let program =
                if program.contains('/') { program.to_owned() } else { format!("./{program}") };
            let mut server = self.server.clone();
            server.insert("name".into(), (*name).into());
            server.remove("program");
            if let Some(Value::Array(command)) = server.get_mut("command") {
                command[0] = program.into();
            }
            servers.push(Value::Table(server));
        }
        plan.insert("server".into(), Value::Array(servers));
        toml::to_string(&plan).map_err(|error| error.to_string())
    }

    pub(super) fn write(
        &self,
        path: &Path,
        name: &str,
        rounds: Option<u32>,
        programs: &[(&str, &Path)],
    ) -> Result<(), String> {
        let text = self.text(name, rounds, programs)?;
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}
