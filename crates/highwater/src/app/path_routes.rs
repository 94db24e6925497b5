//! The routes of one path, while an application is built: the endpoint of each method, and the value of `Allow`.

use highwater_core::http::Method as CoreMethod;
use http::{HeaderValue, Method};

use super::application::Methods;
use super::target::{PathId, ScopeId};

/// The routes registered for one pattern.
pub(super) struct PathRoutes {
    pub(super) pattern: String,
    pub(super) scope: ScopeId,
    pub(super) by_method: Vec<(Method, u16)>,
    pub(super) any: Option<u16>,
}

impl PathRoutes {
    /// The table of this path, with everything that falls back on another method written out.
    ///
    /// A CONNECT with a path is an extended one: in HTTP/2 it is what opens a WebSocket, in place of a GET (RFC 8441 §5). So
    /// it goes to the route for GET, but to no endpoint that does not say that it takes one.
    pub(super) fn methods(&self, path: PathId, takes_connect: impl Fn(u16) -> bool) -> Methods {
        let of = |method: &str| {
            let own = self.by_method.iter().find(|(existing, _)| existing.as_str() == method);
            own.map(|(_, endpoint)| *endpoint)
        };
        let mut named = [self.any; CoreMethod::NAMED.len() + 1];
        for method in CoreMethod::NAMED {
            let fallback = if method == CoreMethod::Head { of("GET") } else { None };
            named[method as usize] = of(method.as_str()).or(fallback).or(self.any);
        }
        let mut connect = [of("CONNECT"), of("GET"), self.any].into_iter().flatten();
        named[CoreMethod::Connect as usize] = connect.find(|endpoint| takes_connect(*endpoint));
        let others = self.by_method.iter().filter(|(method, _)| !has_name(method));
        let others = others.map(|(method, endpoint)| (method.as_str().into(), *endpoint));
        Methods { named, others: others.collect(), path }
    }

    /// The methods of `Allow` (RFC 9110 §10.2.1), in the order of registration.
    pub(super) fn allowed_methods(&self) -> Vec<String> {
        if self.any.is_some() {
            // `Allow` cannot express "any method"; these are the methods that a peer may know.
            let all = CoreMethod::NAMED.iter().map(|method| method.as_str());
            return all.filter(|method| *method != "CONNECT").map(String::from).collect();
        }
        let mut methods = Vec::new();
        for (method, _) in &self.by_method {
            methods.push(method.to_string());
            if *method == Method::GET {
                methods.push(String::from("HEAD"));
            }
        }
        methods.push(String::from("OPTIONS"));
        methods
    }
}

/// Whether the core has a name for a method.
fn has_name(method: &Method) -> bool {
    CoreMethod::from_token(method.as_str().as_bytes()) != CoreMethod::Other
}

/// The value of `Allow`: each method once.
pub(super) fn allow(methods: &[String]) -> HeaderValue {
    let mut unique: Vec<&str> = Vec::new();
    for method in methods {
        if !unique.contains(&method.as_str()) {
            unique.push(method);
        }
    }
    HeaderValue::try_from(unique.join(", ")).expect("methods are tokens")
}
