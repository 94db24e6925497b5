//! Values that the application provides: for all requests, or for the current one.

use std::any::type_name;

use super::{FromRequest, Requirements};
use crate::app::disconnected::Disconnected;
use crate::app::draining::Draining;
use crate::app::error::Error;
use crate::app::request::Request;

/// A clone of a state that was given to [`Router::state`](crate::app::Router::state), found by its
/// type.
///
/// It is cloned for every request: wrap large values in an `Arc`. A closure that captures its data
/// avoids even that:
///
/// ```
/// use std::sync::Arc;
/// use highwater::{Path, Router, State};
///
/// struct Catalog(Vec<String>);
///
/// fn title(State(catalog): State<Arc<Catalog>>, Path(n): Path<usize>) -> Option<String> {
///     catalog.0.get(n).cloned()
/// }
///
/// let catalog = Arc::new(Catalog(vec!["Moby-Dick".into()]));
/// let count = catalog.0.len();
/// let app = Router::new()
///     .state(catalog)
///     .get("/titles/{n}", title)
///     .get("/count", move || count.to_string());
/// # app.build().unwrap();
/// ```
///
/// A route whose state is missing is found when the application is built, not by its first request.
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromRequest for State<T> {
    #[inline]
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        match request.state::<T>() {
            Some(state) => Ok(State(state.clone())),
            None => Err(Error::internal(format!("no state of type `{}`", type_name::<T>()))),
        }
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.state::<T>().is_some()
    }

    fn requires(requirements: &mut Requirements) {
        requirements.state::<T>();
    }
}

impl FromRequest for Disconnected {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(request.disconnected())
    }
}

impl FromRequest for Draining {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(Draining::of(&request.facts().drain))
    }
}

/// A value that a layer has attached to the request; 500 if none has.
///
/// ```
/// use highwater::{Error, Extension, Request, Router, layer};
///
/// #[derive(Clone)]
/// struct User(String);
///
/// fn authenticate(request: &Request<'_>) -> Result<(), Error> {
///     let name = request.header("x-user").ok_or_else(|| Error::unauthorized("who are you?"))?;
///     request.insert(User(name.to_string()));
///     Ok(())
/// }
///
/// let app = Router::new()
///     .layer(layer::on_request(authenticate))
///     .get("/me", |Extension(user): Extension<User>| user.0);
/// # app.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Extension<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromRequest for Extension<T> {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let missing = || Error::internal(format!("nothing has attached a `{}`", type_name::<T>()));
        request.extension().map(Extension).ok_or_else(missing)
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.extension::<T>().is_some()
    }
}
