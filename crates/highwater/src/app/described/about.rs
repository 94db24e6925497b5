//! What is known about an endpoint before the document is made.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::StatusCode;

use super::Operation;

/// What a document knows of an endpoint.
#[derive(Clone, Debug, Default)]
pub(in crate::app) enum Documentation {
    /// Nothing: its types were not looked at.
    #[default]
    Unknown,
    /// Nothing, and it belongs to a resource, which describes its routes together.
    UnknownResource,
    /// It is left out.
    Hidden,
    Known(Box<About>),
}

/// What makes an operation.
#[derive(Clone)]
pub(in crate::app) struct About {
    pub(in crate::app) describe_input: fn(&mut Operation<'_>),
    pub(in crate::app) describe_output: fn(&mut Operation<'_>),
    /// What the user adds.
    pub(in crate::app) more: Vec<Arc<More>>,
    /// The statuses of answers that only a request decides.
    pub(in crate::app) statuses: Vec<StatusCode>,
    pub(in crate::app) function: &'static str,
    pub(in crate::app) id: Option<Cow<'static, str>>,
    pub(in crate::app) summary: Option<Cow<'static, str>>,
    pub(in crate::app) description: Option<Cow<'static, str>>,
    pub(in crate::app) tags: Vec<Cow<'static, str>>,
    pub(in crate::app) is_deprecated: bool,
}

pub(in crate::app) type More = dyn Fn(&mut Operation<'_>) + Send + Sync;

impl Default for About {
    fn default() -> Self {
        About {
            describe_input: |_| {},
            describe_output: |_| {},
            more: Vec::new(),
            statuses: Vec::new(),
            function: "",
            id: None,
            summary: None,
            description: None,
            tags: Vec::new(),
            is_deprecated: false,
        }
    }
}

impl fmt::Debug for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("About").field("function", &self.function).finish_non_exhaustive()
    }
}
