//! The description of a resource, for a document.

use std::borrow::Cow;
use std::marker::PhantomData;

use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::documents::{Documents, Names};
use super::routes::Collection;
use super::settings::Settings;
use super::{Resource, ResourceAsync};
use crate::app::described::{About, DescribeInput, DescribeOutput, HasSchema, Operation};
use crate::app::extract::{Json, Preconditions};
use crate::app::handler::{Async, Inline};
use crate::app::statuses::NoContent;

/// The types of a resource, for all ways in which its methods run. [`Collection::described`] has the bounds that the
/// document needs, so that the compiler names the type that does not satisfy one.
pub trait ResourceTypes<M> {
    #[doc(hidden)]
    type Context;
    #[doc(hidden)]
    type Id;
    #[doc(hidden)]
    type Input;
    #[doc(hidden)]
    type Item;
}

macro_rules! types {
    ($($trait:ident $way:ident)*) => {$(
        impl<R: $trait> ResourceTypes<$way> for R {
            type Context = R::Context;
            type Id = R::Id;
            type Input = R::Input;
            type Item = R::Item;
        }
    )*};
}

types! { Resource Inline ResourceAsync Async }

impl<R> Collection<R> {
    /// Lets the document of [`Router::openapi`](crate::Router::openapi) describe the five routes, from the resource's types,
    /// which need schemas. `one` and `many` are the names of one item and of several, such as `"book"` and `"books"`; the
    /// operations are `list_books`, `create_book`, `show_book`, `replace_book` and `delete_book`, with the tag `books`.
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
    /// use highwater::openapi::OpenApi;
    /// use highwater::resource::resource;
    ///
    /// let app = Router::new()
    ///     .openapi(OpenApi::new("Library", "1"))
    ///     .resource("/books", resource(Books).described("book", "books"));
    /// # app.build().unwrap();
    /// ```
    pub fn described<M>(mut self, one: &'static str, many: &'static str) -> Self
    where
        R: ResourceTypes<M>,
        R::Context: DescribeInput,
        R::Id: HasSchema + 'static,
        R::Input: DescribeInput + 'static,
        R::Item: HasSchema,
    {
        self.documents = Documents::Known(Names { one, many }, describe_all::<R, M>);
        self
    }

    /// Leaves the five routes out of the document, as [`openapi::hidden`](crate::openapi::hidden) does a handler.
    pub fn hidden(mut self) -> Self {
        self.documents = Documents::Hidden;
        self
    }
}

/// The operations, in the order of the routes.
fn describe_all<R, M>(names: Names, settings: Settings) -> [About; 5]
where
    R: ResourceTypes<M>,
    R::Context: DescribeInput,
    R::Id: HasSchema + 'static,
    R::Input: DescribeInput + 'static,
    R::Item: HasSchema,
{
    let Names { one, many } = names;
    let about = |id: String, summary: String| About {
        id: Some(Cow::Owned(id)),
        summary: Some(Cow::Owned(summary)),
        tags: vec![many.into()],
        describe_input: R::Context::describe,
        ..About::default()
    };
    let with = |mut about: About, more: MoreOfResource| {
        about.more.push(std::sync::Arc::new(more));
        about
    };
    let list = About {
        describe_output: <Json<PageOf<R::Item>> as DescribeOutput>::describe,
        ..about(format!("list_{many}"), format!("A page of {many}"))
    };
    let create = About {
        describe_output: created::<R::Item>,
        ..about(format!("create_{one}"), format!("A new {one}"))
    };
    let show = About {
        describe_output: <Json<R::Item> as DescribeOutput>::describe,
        ..about(format!("show_{one}"), format!("One {one}"))
    };
    let replace = About {
        describe_output: <Json<R::Item> as DescribeOutput>::describe,
        ..about(format!("replace_{one}"), format!("Replaces a {one}"))
    };
    let delete = About {
        describe_output: NoContent::describe,
        ..about(format!("delete_{one}"), format!("Deletes a {one}"))
    };
    [
        with(list, Box::new(move |operation| describe_list(operation, settings))),
        with(create, Box::new(describe_create::<R::Input>)),
        with(show, Box::new(describe_show::<R::Id>)),
        with(
            replace,
            Box::new(move |operation| describe_replace::<R::Id, R::Input>(operation, settings)),
        ),
        with(delete, Box::new(move |operation| describe_change::<R::Id>(operation, settings))),
    ]
}

type MoreOfResource = Box<dyn Fn(&mut Operation<'_>) + Send + Sync>;

fn created<T: HasSchema>(operation: &mut Operation<'_>) {
    crate::app::statuses::Created::<Json<T>>::describe(operation);
}

fn describe_list(operation: &mut Operation<'_>, settings: Settings) {
    let Settings { per_page, per_page_max, .. } = settings;
    let page = json!({ "type": "integer", "format": "uint32", "minimum": 1, "maximum": u32::MAX, "default": 1 });
    operation.query_parameter("page", page, "The number of the page; the first is 1.");
    let size = json!({ "type": "integer", "format": "uint32", "minimum": 1, "maximum": per_page_max, "default": per_page });
    operation.query_parameter("per_page", size, "How many items a page has.");
    operation.error(StatusCode::BAD_REQUEST, "A query parameter is not valid (`invalid_query`).");
    operation.error(
        StatusCode::UNPROCESSABLE_ENTITY,
        "The page does not exist, or `per_page` is too large (`validation_failed`).",
    );
    describe_read(operation);
    operation.answer_header("Link", "The pages around this one: `first`, `prev`, `next`, `last`.");
}

fn describe_create<I: DescribeInput>(operation: &mut Operation<'_>) {
    I::describe(operation);
    operation.answer_header("ETag", "The state of the item, for `If-Match`.");
    operation.answer_header("Location", "Where the item is.");
}

fn describe_show<I: HasSchema>(operation: &mut Operation<'_>) {
    describe_item::<I>(operation);
    describe_read(operation);
}

fn describe_replace<I: HasSchema, T: DescribeInput>(
    operation: &mut Operation<'_>,
    settings: Settings,
) {
    describe_change::<I>(operation, settings);
    T::describe(operation);
    operation.answer_header("ETag", "The state of the item, for `If-Match`.");
}

fn describe_item<I: HasSchema>(operation: &mut Operation<'_>) {
    operation.last_path_parameter::<I>();
    operation.error(StatusCode::BAD_REQUEST, "The id is not valid (`invalid_path`).");
    operation.error(StatusCode::NOT_FOUND, "There is no such item.");
}

/// What can be read again without being sent again.
fn describe_read(operation: &mut Operation<'_>) {
    Preconditions::describe(operation);
    operation.answer_header("ETag", "The current state, for `If-None-Match` and `If-Match`.");
    operation.answer::<()>(StatusCode::NOT_MODIFIED, "The client already has the current state.");
}

fn describe_change<I: HasSchema>(operation: &mut Operation<'_>, settings: Settings) {
    describe_item::<I>(operation);
    Preconditions::describe(operation);
    if settings.if_match_required {
        operation.error(
            StatusCode::PRECONDITION_REQUIRED,
            "`If-Match` is missing (`precondition_required`).",
        );
    }
}

/// The shape of a page.
struct PageOf<T>(PhantomData<fn() -> T>);

impl<T: HasSchema> JsonSchema for PageOf<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("PageOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({
            "type": "object",
            "properties": {
                "items": { "type": "array", "items": items },
                "page": { "type": "integer", "minimum": 1, "description": "The number of the page; the first is 1." },
                "per_page": { "type": "integer", "minimum": 1, "description": "How many items a page has." },
                "total": { "type": "integer", "minimum": 0, "description": "The number of items on all pages, if it is known." },
            },
            "required": ["items", "page", "per_page"],
        })
    }
}
