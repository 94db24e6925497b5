//! The handlers of a resource: their arguments, and how the results of its methods become answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{Method, StatusCode};
use serde_core::Serialize;

use super::condition::{Expected, no_such_item};
use super::id::{Id, path_of};
use super::page::{Asked, answer};
use super::settings::Settings;
use super::{Resource, ResourceAsync};
use crate::app::error::Error;
use crate::app::extract::{FromRequest, Json, LastParameter, Preconditions};
use crate::app::handler::{Handler, blocking};
use crate::app::into_response::IntoResponse;
use crate::app::request::Request;
use crate::app::response::Response;
use crate::app::route::Route;
use crate::content::entity_tag;

/// The routes of a list, and those of an item, at paths that are given later.
pub(super) type Routes = ([Route; 2], [Route; 3]);

type Answer = Result<Response, Error>;

/// Methods that run on the worker, at once.
pub(super) fn inline<R: Resource>(resource: Arc<R>, settings: Settings) -> Routes {
    let r = || Arc::clone(&resource);
    (
        [route(Method::GET, list(r(), settings)), route(Method::POST, create(r()))],
        [
            route(Method::GET, show(r())),
            route(Method::PUT, replace(r(), settings)),
            route(Method::DELETE, delete(r(), settings)),
        ],
    )
}

/// Methods that run on the pool.
pub(super) fn pooled<R>(resource: Arc<R>, settings: Settings) -> Routes
where
    R: Resource<Context: Send, Id: Send, Input: Send>,
{
    let r = || Arc::clone(&resource);
    (
        [
            route(Method::GET, blocking(list(r(), settings))),
            route(Method::POST, blocking(create(r()))),
        ],
        [
            route(Method::GET, blocking(show(r()))),
            route(Method::PUT, blocking(replace(r(), settings))),
            route(Method::DELETE, blocking(delete(r(), settings))),
        ],
    )
}

/// Methods that wait.
pub(super) fn awaited<R: ResourceAsync>(resource: Arc<R>, settings: Settings) -> Routes {
    let r = || Arc::clone(&resource);
    (
        [route(Method::GET, list_async(r(), settings)), route(Method::POST, create_async(r()))],
        [
            route(Method::GET, show_async(r())),
            route(Method::PUT, replace_async(r(), settings)),
            route(Method::DELETE, delete_async(r(), settings)),
        ],
    )
}

fn route<M: 'static>(method: Method, handler: impl Handler<M>) -> Route {
    Route::of(handler).on(&[method])
}

macro_rules! at_once {
    (type) => { Answer };
    ($resource:ident, |$($argument:ident: $type:ty),*| $body:block) => {
        move |$($argument: $type),*| $body
    };
}

macro_rules! later {
    (type) => { Pin<Box<dyn Future<Output = Answer>>> };
    ($resource:ident, |$($argument:ident: $type:ty),*| $body:block) => {
        move |$($argument: $type),*| {
            let $resource = Arc::clone(&$resource);
            Box::pin(async move $body) as Pin<Box<dyn Future<Output = Answer>>>
        }
    };
}

macro_rules! handlers {
    ($($trait:ident $list:ident $create:ident $show:ident $replace:ident $delete:ident $ran:ident ($($wait:tt)*);)*) => {$(
        fn $list<R: $trait>(
            resource: Arc<R>,
            settings: Settings,
        ) -> impl Fn(R::Context, Asked) -> $ran!(type) + Send + Sync + 'static {
            $ran!(resource, |context: R::Context, asked: Asked| {
                let page = asked.page(settings)?;
                asked.answer(page, resource.list(context, page) $($wait)* ?)
            })
        }

        fn $create<R: $trait>(
            resource: Arc<R>,
        ) -> impl Fn(R::Context, Place, R::Input) -> $ran!(type) + Send + Sync + 'static {
            $ran!(resource, |context: R::Context, place: Place, input: R::Input| {
                let (id, item) = resource.create(context, input) $($wait)* ?;
                Ok(created(&place, &id, &item, R::version))
            })
        }

        fn $show<R: $trait>(
            resource: Arc<R>,
        ) -> impl Fn(R::Context, LastParameter<R::Id>, Preconditions) -> $ran!(type) + Send + Sync + 'static {
            $ran!(resource, |context: R::Context, id: LastParameter<R::Id>, conditions: Preconditions| {
                shown(&conditions, resource.show(context, id.0) $($wait)* ?, R::version)
            })
        }

        fn $replace<R: $trait>(
            resource: Arc<R>,
            settings: Settings,
        ) -> impl Fn(R::Context, LastParameter<R::Id>, Preconditions, R::Input) -> $ran!(type) + Send + Sync + 'static {
            $ran!(resource, |context: R::Context, id: LastParameter<R::Id>, conditions: Preconditions, input: R::Input| {
                let expected = Expected::new(conditions, R::version);
                expected.begin(settings.if_match_required)?;
                let replaced = resource.replace(context, id.0, input, &expected) $($wait)* ;
                Ok(tagged(&expected.end("replace", replaced)?, R::version))
            })
        }

        fn $delete<R: $trait>(
            resource: Arc<R>,
            settings: Settings,
        ) -> impl Fn(R::Context, LastParameter<R::Id>, Preconditions) -> $ran!(type) + Send + Sync + 'static {
            $ran!(resource, |context: R::Context, id: LastParameter<R::Id>, conditions: Preconditions| {
                let expected = Expected::new(conditions, R::version);
                expected.begin(settings.if_match_required)?;
                let deleted = resource.delete(context, id.0, &expected) $($wait)* ;
                expected.end("delete", deleted)?;
                Ok(Response::new(StatusCode::NO_CONTENT))
            })
        }
    )*};
}

// The methods of a resource, and the same of one whose methods are awaited.
handlers! {
    Resource list create show replace delete at_once ();
    ResourceAsync list_async create_async show_async replace_async delete_async later (.await);
}

/// The path of a request as it was sent, for the addresses of what is made below it.
struct Place(String);

impl FromRequest for Place {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(Place(request.original_path().to_owned()))
    }
}

/// 201, with the address of what is new.
fn created<T: Serialize>(
    place: &Place,
    id: &impl Id,
    item: &T,
    version: fn(&T) -> String,
) -> Response {
    let response = tagged(item, version);
    match response.is_error() {
        true => response,
        false => {
            response.with_status(StatusCode::CREATED).with_header("location", path_of(&place.0, id))
        }
    }
}

fn shown<T: Serialize>(
    conditions: &Preconditions,
    item: Option<T>,
    version: fn(&T) -> String,
) -> Answer {
    let item = item.ok_or_else(no_such_item)?;
    let tag = entity_tag::of_version(&version(&item));
    let verdict = conditions.judge(Some(&tag));
    answer(Json(item).into_response().with_header("etag", tag), verdict)
}

fn tagged<T: Serialize>(item: &T, version: fn(&T) -> String) -> Response {
    let tag = entity_tag::of_version(&version(item));
    Json(item).into_response().with_header("etag", tag)
}
