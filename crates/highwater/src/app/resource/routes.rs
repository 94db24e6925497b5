//! The routes of a resource.

use std::fmt;
use std::sync::Arc;

use super::handlers::{Routes, awaited, inline, pooled};
use super::settings::Settings;
use super::{PER_PAGE, PER_PAGE_MAX, Resource, ResourceAsync};
use crate::app::handler::{Async, Inline};
use crate::app::router::Router;

/// What [`Router::resource`] takes: a [`Resource`], a [`ResourceAsync`], or a [`Collection`] made of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a resource",
    label = "no routes can be made of this",
    note = "implement `highwater::resource::Resource` for it, or `ResourceAsync` if its methods wait"
)]
pub trait IntoCollection<M> {
    /// The type that implements the trait.
    #[doc(hidden)]
    type Of;

    /// Its routes.
    #[doc(hidden)]
    fn into_collection(self) -> Collection<Self::Of>;
}

impl<R: Resource> IntoCollection<Inline> for R {
    type Of = R;

    fn into_collection(self) -> Collection<R> {
        Collection::new(self, inline::<R>)
    }
}

impl<R: ResourceAsync> IntoCollection<Async> for R {
    type Of = R;

    fn into_collection(self) -> Collection<R> {
        Collection::new(self, awaited::<R>)
    }
}

/// Marks a [`Collection`].
#[derive(Debug)]
pub struct ViaCollection;

impl<R> IntoCollection<ViaCollection> for Collection<R> {
    type Of = R;

    fn into_collection(self) -> Collection<R> {
        self
    }
}

/// A resource whose routes can be changed before they are given to [`Router::resource`]:
///
/// ```
/// # use highwater::resource::{Expected, Listing, Page, Resource};
/// # use highwater::{Error, Json, Router};
/// # struct Books;
/// # impl Resource for Books {
/// #     type Context = ();
/// #     type Id = u64;
/// #     type Input = Json<String>;
/// #     type Item = String;
/// #     fn list(&self, _: (), _: Page) -> Result<Listing<String>, Error> { Ok(Listing::new(vec![])) }
/// #     fn create(&self, _: (), Json(text): Json<String>) -> Result<(u64, String), Error> { Ok((1, text)) }
/// #     fn show(&self, _: (), _: u64) -> Result<Option<String>, Error> { Ok(None) }
/// #     fn replace(&self, _: (), _: u64, _: Json<String>, e: &Expected<String>) -> Result<String, Error> {
/// #         e.check(None)?; Ok(String::new())
/// #     }
/// #     fn delete(&self, _: (), _: u64, e: &Expected<String>) -> Result<(), Error> { e.check(None) }
/// # }
/// use highwater::resource::resource;
///
/// let books = resource(Books).per_page(50, 500).if_match_required().blocking();
/// let app = Router::new().resource("/books", books);
/// # app.build().unwrap();
/// ```
pub fn resource<R: IntoCollection<M>, M>(resource: R) -> Collection<R::Of> {
    resource.into_collection()
}

/// A resource with its settings; made by [`resource`].
#[must_use = "give it to `Router::resource`"]
pub struct Collection<R> {
    resource: R,
    settings: Settings,
    routes: fn(Arc<R>, Settings) -> Routes,
    #[cfg(feature = "openapi")]
    pub(super) documents: super::documents::Documents,
}

impl<R> Collection<R> {
    fn new(resource: R, routes: fn(Arc<R>, Settings) -> Routes) -> Self {
        let settings =
            Settings { per_page: PER_PAGE, per_page_max: PER_PAGE_MAX, if_match_required: false };
        Collection {
            resource,
            settings,
            routes,
            #[cfg(feature = "openapi")]
            documents: super::documents::Documents::default(),
        }
    }

    /// Sets the number of items on a page ([`PER_PAGE`]), and the largest number that a request may ask for
    /// ([`PER_PAGE_MAX`]).
    ///
    /// # Panics
    /// If `default` is 0, or more than `max`.
    pub fn per_page(mut self, default: u32, max: u32) -> Self {
        assert!((1..=max).contains(&default), "per_page({default}, {max}): 1 ≤ default ≤ max");
        self.settings.per_page = default;
        self.settings.per_page_max = max;
        self
    }

    /// Answers `PUT` and `DELETE` without `If-Match` with 428 `precondition_required`, so that no client overwrites changes that
    /// it has not seen.
    pub fn if_match_required(mut self) -> Self {
        self.settings.if_match_required = true;
        self
    }

    /// Runs the methods on the pool, as [`blocking`](crate::blocking) does for a handler: for methods that read files or use a
    /// database without `async`.
    pub fn blocking(mut self) -> Self
    where
        R: Resource<Context: Send, Id: Send, Input: Send>,
    {
        self.routes = pooled::<R>;
        self
    }

    fn into_routes(self) -> Routes {
        let routes = (self.routes)(Arc::new(self.resource), self.settings);
        #[cfg(feature = "openapi")]
        let routes = self.documents.describe(routes, self.settings);
        routes
    }
}

impl<R> fmt::Debug for Collection<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collection").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Router {
    /// Adds the five routes of a [`Resource`]: two at `path`, and three at `path` followed by `/{id}`. See
    /// [`resource`](super::resource).
    ///
    /// `path` may have parameters, which the resource's `Context` takes by name (`Path<T>` of a struct); none is named `id`.
    #[must_use]
    pub fn resource<M>(mut self, path: &str, resource: impl IntoCollection<M>) -> Self {
        let (list, item) = resource.into_collection().into_routes();
        let item_path = format!("{}/{{id}}", path.trim_end_matches('/'));
        self.routes.extend(list.map(|route| route.at(path)));
        self.routes.extend(item.map(|route| route.at(&item_path)));
        self
    }
}
