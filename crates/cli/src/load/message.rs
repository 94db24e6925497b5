//! A request as the fields and content of HTTP/2.

use highwater_core::http2::hpack::Indexing;

use super::spec::Spec;
use super::template::{Template, Values};

/// Fields that are about a connection (RFC 9113 §8.2.2); HTTP/2 has no place for them.
const REFUSED: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// One kind of request.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) is_head: bool,
    /// Names, values, and whether a value is worth a place in the table of fields.
    fields: Vec<(Vec<u8>, Template, Indexing)>,
    body: Option<Template>,
}

/// What takes the fields of a request, one by one.
type Add<'a> = dyn FnMut(&[u8], &[u8], Indexing) + 'a;

/// A request whose parameters have values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) is_head: bool,
    /// Lengths of name and value, and the indexing, of each field in `bytes`.
    fields: Vec<(usize, usize, Indexing)>,
    bytes: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// # Errors
    /// A field that HTTP/2 does not have; the message names it.
    pub(crate) fn new(spec: &Spec, scheme: &str, authority: &str) -> Result<Message, String> {
        let place = &spec.place;
        if spec.method == "CONNECT" {
            return Err(format!(
                "{place}method CONNECT is not for HTTP/2; write another method, or leave out --http2"
            ));
        }
        let mut host = Template::literal(authority);
        let mut others = Vec::new();
        for (name, value) in &spec.headers {
            let name = name.to_ascii_lowercase();
            if REFUSED.contains(&name.as_str()) {
                return Err(format!(
                    "{place}header {name} is not for HTTP/2 (RFC 9113, section 8.2.2); leave it out"
                ));
            }
            match name.as_str() {
                "host" => host = value.clone(),
                _ => {
                    let indexing = of_value(&name, value);
                    others.push((name.into_bytes(), value.clone(), indexing));
                }
            }
        }
        let field = |name: &str, value: Template| {
            let indexing = of_value(name, &value);
            (name.as_bytes().to_vec(), value, indexing)
        };
        let mut fields = vec![
            field(":method", Template::literal(spec.method.as_str())),
            field(":scheme", Template::literal(scheme)),
            field(":authority", host),
            field(":path", spec.path.clone()),
        ];
        fields.append(&mut others);
        let has_body = spec.body.constant() != Some(&[]);
        let is_expected = matches!(spec.method.as_str(), "POST" | "PUT" | "PATCH");
        let body = (has_body || is_expected).then(|| spec.body.clone());
        Ok(Message { is_head: spec.method == "HEAD", fields, body })
    }

    /// Decides the values of the next request.
    pub(crate) fn write(&self, values: &mut Values, out: &mut Written) {
        values.next_request();
        out.is_head = self.is_head;
        out.fields.clear();
        out.bytes.clear();
        out.body.clear();
        for (name, value, indexing) in &self.fields {
            out.bytes.extend_from_slice(name);
            let before = out.bytes.len();
            value.render(values, &mut out.bytes);
            out.fields.push((name.len(), out.bytes.len() - before, *indexing));
        }
        if let Some(body) = &self.body {
            body.render(values, &mut out.body);
            let name = b"content-length";
            let length = out.body.len().to_string();
            out.bytes.extend_from_slice(name);
            out.bytes.extend_from_slice(length.as_bytes());
            out.fields.push((name.len(), length.len(), Indexing::Without));
        }
    }
}

impl Written {
    /// Its fields, in order.
    pub(crate) fn each(&self, add: &mut Add<'_>) {
        let mut rest = &self.bytes[..];
        for (name, value, indexing) in &self.fields {
            let (name, behind) = rest.split_at(*name);
            let (value, behind) = behind.split_at(*value);
            add(name, value, *indexing);
            rest = behind;
        }
    }
}

/// What never changes is worth a place, if it is no secret; a path too, since this client sends few different ones.
fn of_value(name: &str, value: &Template) -> Indexing {
    match Indexing::usual(name.as_bytes()) {
        Indexing::Never => Indexing::Never,
        _ if value.constant().is_some() => Indexing::Incremental,
        _ => Indexing::Without,
    }
}
