//! Which requests does a mix consist of? A TOML file, read and checked as a whole before anything is sent.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::args::{BODY_MAX, REQUESTS_MAX, WEIGHT_MAX};
use super::expect::{Body, Expect};
use super::files;
use super::request::{check_path, header};
use super::spec::Spec;
use super::template::Template;

/// Bytes of a mix file, at most.
const MIX_SIZE_MAX: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "request", default)]
    requests: Vec<Entry>,
}

/// A request, as in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<String>,
    #[serde(default = "one")]
    weight: i64,
    #[serde(default = "get")]
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    body_file: Option<PathBuf>,
    #[serde(default)]
    expect: Expected,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    status: Option<u16>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    contains: Option<String>,
}

fn one() -> i64 {
    1
}

fn get() -> String {
    "GET".to_owned()
}

/// Reads the mix of `path`. Every request gets the fields of `common` that it lacks.
///
/// # Errors
/// The file cannot be read or is not a mix; the message names file, request, setting and remedy.
pub(crate) fn read(path: &Path, common: &[(String, Template)]) -> Result<Vec<Spec>, String> {
    let shown = path.display();
    let bytes = files::read("--mix", path, MIX_SIZE_MAX)?;
    let text = String::from_utf8(bytes)
        .map_err(|error| format!("--mix {shown}: is not text: {error}; write TOML"))?;
    let file: File = toml::from_str(&text).map_err(|error| format!("--mix {shown}: {error}"))?;
    if !(1..=REQUESTS_MAX).contains(&file.requests.len()) {
        return Err(format!(
            "--mix {shown}: {} requests; write 1 to {REQUESTS_MAX}, each under [[request]]",
            file.requests.len()
        ));
    }
    let mut names = HashSet::new();
    file.requests
        .into_iter()
        .map(|entry| {
            let spec = spec(path, entry, common)?;
            match names.insert(spec.name.clone()) {
                true => Ok(spec),
                false => Err(format!(
                    "{}name is not unique; give each request its own `name`",
                    spec.place
                )),
            }
        })
        .collect()
}

fn spec(file: &Path, entry: Entry, common: &[(String, Template)]) -> Result<Spec, String> {
    let name = entry.name.unwrap_or_else(|| format!("{} {}", entry.method, entry.path));
    let place = format!("--mix {}: request {name:?}: ", file.display());
    let at = |setting: &str, error: String| format!("{place}{setting}: {error}");
    let weight =
        u64::try_from(entry.weight).ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    let weight =
        weight.ok_or_else(|| format!("{place}weight {} is not 1 to {WEIGHT_MAX}", entry.weight))?;
    if !entry.path.starts_with('/') || entry.path.contains('#') {
        return Err(format!("{place}path {:?} is not a path; write /PATH?QUERY", entry.path));
    }
    let path = Template::parse(&entry.path).map_err(|error| at("path", error))?;
    check_path(&path).map_err(|error| at("path", error))?;
    let mut headers = Vec::new();
    for (name, value) in &entry.headers {
        let value = Template::parse(value).map_err(|error| at("headers", error))?;
        headers.push(header(&place, name, value)?);
    }
    let is_new = |name: &str| entry.headers.keys().all(|own| !own.eq_ignore_ascii_case(name));
    headers.extend(common.iter().filter(|(name, _)| is_new(name)).cloned());
    let body = match (entry.body, entry.body_file) {
        (Some(_), Some(_)) => return Err(format!("{place}has body and body_file; write one")),
        (Some(text), None) => Template::parse(&text).map_err(|error| at("body", error))?,
        (None, Some(name)) => {
            let beside = file.parent().unwrap_or(Path::new("")).join(name);
            Template::literal(files::read(&format!("{place}body_file"), &beside, BODY_MAX)?)
        }
        (None, None) => Template::default(),
    };
    let expect = expect(&place, entry.expect)?;
    Ok(Spec { place, name, weight, method: entry.method, path, headers, body, expect })
}

fn expect(place: &str, expected: Expected) -> Result<Expect, String> {
    let body = match (expected.body, expected.contains) {
        (Some(_), Some(_)) => {
            return Err(format!("{place}expect has body and contains; write one"));
        }
        (Some(whole), None) => Some(Body::Whole(whole.into_bytes())),
        (None, Some(text)) => Some(Body::part(&text)),
        (None, None) => None,
    };
    let headers = expected.headers.into_iter().collect();
    Ok(Expect { status: expected.status, headers, body })
}
