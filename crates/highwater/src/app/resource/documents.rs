//! What a document says of the routes of a resource, before they have paths.

use super::handlers::Routes;
use crate::app::described::{About, Documentation};
use crate::app::route::Route;

/// What a document says of five routes, in their order.
#[derive(Debug)]
pub(super) struct Documents(pub(super) [About; 5]);

impl Documents {
    pub(super) fn describe(self, (list, item): Routes) -> Routes {
        let [one, two, three, four, five] = self.0;
        let ([list, create], [show, replace, delete]) = (list, item);
        (
            [documented(list, one), documented(create, two)],
            [documented(show, three), documented(replace, four), documented(delete, five)],
        )
    }
}

fn documented(mut route: Route, about: About) -> Route {
    route.description.documentation = Documentation::Known(Box::new(about));
    route
}
