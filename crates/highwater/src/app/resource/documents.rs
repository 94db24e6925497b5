//! The description of the routes of a resource, before they have paths.

use super::handlers::Routes;
use crate::app::described::{About, Documentation};

/// What a document says of five routes.
#[derive(Debug, Default)]
pub(super) enum Documents {
    /// Nothing: an application with a document is not built with it.
    #[default]
    Unknown,
    /// They are left out.
    Hidden,
    /// In the order of the routes.
    Known(Box<[About; 5]>),
}

impl Documents {
    pub(super) fn describe(self, (mut list, mut item): Routes) -> Routes {
        let each = match self {
            Documents::Unknown => [const { Documentation::UnknownResource }; 5],
            Documents::Hidden => [const { Documentation::Hidden }; 5],
            Documents::Known(all) => all.map(|about| Documentation::Known(Box::new(about))),
        };
        let routes = list.iter_mut().chain(&mut item);
        routes.zip(each).for_each(|(route, one)| route.description.documentation = one);
        (list, item)
    }
}
