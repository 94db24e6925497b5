//! The description of the routes of a resource, before they have paths.

use super::handlers::Routes;
use super::settings::Settings;
use crate::app::described::{About, Documentation};

/// What a document says of five routes.
#[derive(Debug, Default)]
pub(super) enum Documents {
    /// Nothing: an application with a document is not built with it.
    #[default]
    Unknown,
    /// They are left out.
    Hidden,
    /// What the resource's types say, once its settings are known.
    Known(Names, fn(Names, Settings) -> [About; 5]),
}

/// The names of one item and of several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) one: &'static str,
    pub(super) many: &'static str,
}

impl Documents {
    pub(super) fn describe(self, (mut list, mut item): Routes, settings: Settings) -> Routes {
        let each = match self {
            Documents::Unknown => [const { Documentation::UnknownResource }; 5],
            Documents::Hidden => [const { Documentation::Hidden }; 5],
            Documents::Known(names, about) => {
                about(names, settings).map(|about| Documentation::Known(Box::new(about)))
            }
        };
        let routes = list.iter_mut().chain(&mut item);
        routes.zip(each).for_each(|(route, one)| route.description.documentation = one);
        (list, item)
    }
}
