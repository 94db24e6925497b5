//! Makes the documents of routers, once all routes are known.

use std::collections::HashMap;

use highwater_core::route;
use http::Method;

use super::Build;
use crate::app::application::Methods;
use crate::app::described::Documentation;
use crate::app::fixed::fixed;
use crate::app::openapi::{DOCUMENT_PATH, Document, OpenApi, PAGE_PATH, RouteContext};
use crate::app::route::Route;
use crate::app::target::ScopeId;

impl Build {
    /// Adds the routes of a router's document, whose answers are made later.
    pub(super) fn begin_document(
        &mut self,
        openapi: OpenApi,
        prefix: &str,
        scope: ScopeId,
    ) -> Document {
        let begin = self.endpoints.len();
        for path in [DOCUMENT_PATH, PAGE_PATH] {
            let mut route = Route::of(fixed("")).on(&[Method::GET]).at(path);
            route.description.documentation = Documentation::Hidden;
            self.add_route(route, prefix, scope, None);
        }
        self.documentation.get_or_insert_with(|| format!("{prefix}{PAGE_PATH}"));
        Document::new(openapi, begin)
    }

    /// Makes the answers of all documents, unless there are other problems: those may be why a document cannot be made.
    pub(super) fn make_documents(
        &mut self,
        paths: &route::Router<Methods>,
        route_of: &HashMap<String, route::RouteId>,
    ) {
        if !self.problems.is_empty() {
            return;
        }
        for document in std::mem::take(&mut self.documents) {
            let routes =
                self.endpoints[document.endpoints()].iter().filter(|(route, _)| !route.is_fallback);
            let routes = routes.map(|(route, scope)| {
                let names =
                    route_of.get(&route.path).map(|id| paths.param_names(*id)).unwrap_or_default();
                let names = names.iter().map(|name| String::from(&**name)).collect();
                let scope = &self.scopes[usize::from(*scope)];
                (
                    route,
                    names,
                    RouteContext {
                        layers: scope.stack.layers().collect(),
                        renderer: scope.renders,
                    },
                )
            });
            match document.make(routes) {
                Ok(answers) => {
                    for (index, answer) in document.places().zip(answers) {
                        let (route, _) = &mut self.endpoints[index];
                        let made = Route::of(answer);
                        (route.handler, route.description) = (made.handler, made.description);
                        // A document around this one does not describe it.
                        route.description.documentation = Documentation::Hidden;
                    }
                }
                Err(problems) => self.problems.extend(problems),
            }
        }
    }
}
