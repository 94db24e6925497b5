//! Functions and async functions as handlers.

use std::future::{Future, ready};
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Description, Dispatch, Erased, Handler, Kind};
use crate::app::error::Error;
use crate::app::extract::FromRequest;
use crate::app::finisher::ResponseFinisher;
use crate::app::guard::GuardedFuture;
use crate::app::into_response::IntoResponse;
use crate::app::outcome::Outcome;
use crate::app::request::Request;
use crate::app::response::Response;

impl<F, Args, Way> Handler<(Way, Args)> for F
where
    F: Callable<Args>,
    Args: Arguments,
    F::Output: Answer<Way>,
{
    fn describe(&self, description: &mut Description) {
        description.kind = if Args::AWAITS { Kind::Async } else { F::Output::KIND };
        Args::describe(description);
    }

    fn erase(self) -> Box<dyn Dispatch>
    where
        (Way, Args): 'static,
    {
        match Args::AWAITS {
            true => Box::new(Awaiting { function: Arc::new(self), marker: PhantomData }),
            false => Box::new(Erased(self, PhantomData)),
        }
    }

    #[inline]
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        match Args::extract(request) {
            Ok(args) => self.call(args).answer(request),
            Err(error) => Outcome::Ready(error.into_response()),
        }
    }
}

/// A function some of whose arguments have to be awaited.
struct Awaiting<F, Args, Way> {
    function: Arc<F>,
    marker: PhantomData<fn(Args) -> Way>,
}

impl<F, Args, Way> Dispatch for Awaiting<F, Args, Way>
where
    F: Callable<Args>,
    Args: Arguments + 'static,
    F::Output: Answer<Way>,
{
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        let (function, args) = (Arc::clone(&self.function), Args::begin(request));
        let finisher = ResponseFinisher::of(request);
        Outcome::Later(GuardedFuture::new(finisher.after(async move {
            let args = args.await?;
            Ok::<Response, Error>(function.call(args).resolve().await)
        })))
    }
}

/// A function of up to eight arguments.
pub trait Callable<Args>: Send + Sync + 'static {
    /// The function's return type.
    type Output;

    /// Calls it.
    fn call(&self, args: Args) -> Self::Output;
}

/// The return type of a function, which decides how it is run.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this handler returns something that is not a response",
    note = "a handler returns, or its future resolves to, text (`&'static str`, `String`), bytes \
            (`Bytes`, `Vec<u8>`), `Json(value)`, `Html(text)`, a `StatusCode`, \
            `(StatusCode, response)`, `Result<response, Error>` or a `Response`",
    note = "write `Json(value)` for a value that implements `serde::Serialize`, `Result<_, Error>` for \
            what can fail; implement `IntoError` for an error type of your own, or `IntoResponse` for any \
            other type"
)]
pub trait Answer<Way>: Sized {
    /// How it is run.
    const KIND: Kind;

    /// Makes an outcome of it.
    fn answer<'h>(self, request: &Request<'_>) -> Outcome<'h>;

    /// Makes a response of it, within a future.
    fn resolve(self) -> impl Future<Output = Response>;
}

/// The way of `fn`.
#[derive(Debug)]
pub struct Inline;

/// The way of `async fn`.
#[derive(Debug)]
pub struct Async;

impl<R: IntoResponse> Answer<Inline> for R {
    const KIND: Kind = Kind::Inline;

    #[inline]
    fn answer<'h>(self, _request: &Request<'_>) -> Outcome<'h> {
        Outcome::Ready(self.into_response())
    }

    fn resolve(self) -> impl Future<Output = Response> {
        ready(self.into_response())
    }
}

impl<F> Answer<Async> for F
where
    F: Future<Output: IntoResponse> + 'static,
{
    const KIND: Kind = Kind::Async;

    #[inline]
    fn answer<'h>(self, request: &Request<'_>) -> Outcome<'h> {
        let finisher = ResponseFinisher::of(request);
        Outcome::Later(GuardedFuture::of(Box::pin(finisher.after(self))))
    }

    async fn resolve(self) -> Response {
        self.await.into_response()
    }
}

/// A list of extractors.
pub trait Arguments: Sized {
    /// Whether one of them has to be awaited.
    const AWAITS: bool;

    /// Extracts them, from left to right.
    ///
    /// # Errors
    /// That of the first that fails.
    fn extract(request: &Request<'_>) -> Result<Self, Error>;

    /// Begins to make them; the future, which owns what it needs, awaits them from left to right.
    fn begin(request: &Request<'_>) -> impl Future<Output = Result<Self, Error>> + 'static
    where
        Self: 'static;

    /// Adds the requirements of the arguments.
    fn describe(description: &mut Description);
}

/// A list of extractors whose values can be moved to another thread.
pub trait SendArguments: Arguments + Send + 'static {}

/// A value that can be moved to the pool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be moved to the pool that blocking handlers run on",
    label = "this argument is not `Send`",
    note = "extract something that is `Send` (an `Arc` instead of an `Rc`), or make the handler an \
            `async fn` or a plain `fn`, which stay on the worker's thread"
)]
pub trait Portable: Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Send + 'static> Portable for T {}

macro_rules! implement_for_arity {
    ($($arg:ident)*) => {
        impl<F, R, $($arg),*> Callable<($($arg,)*)> for F
        where
            F: Fn($($arg),*) -> R + Send + Sync + 'static,
        {
            type Output = R;

            #[inline]
            #[allow(non_snake_case, reason = "a type parameter's name is the variable's, too")]
            fn call(&self, ($($arg,)*): ($($arg,)*)) -> R {
                self($($arg),*)
            }
        }

        impl<$($arg: FromRequest),*> Arguments for ($($arg,)*) {
            const AWAITS: bool = false $(|| $arg::AWAITS)*;

            #[inline]
            #[allow(unused_variables, reason = "there may be no argument")]
            fn extract(request: &Request<'_>) -> Result<Self, Error> {
                Ok(($($arg::from_request(request)?,)*))
            }

            #[allow(unused_variables, reason = "there may be no argument")]
            #[allow(non_snake_case, reason = "a type parameter's name is the variable's, too")]
            fn begin(request: &Request<'_>) -> impl Future<Output = Result<Self, Error>> + 'static
            where
                Self: 'static,
            {
                $(let $arg = $arg::begin(request);)*
                async move { Ok(($($arg.end().await?,)*)) }
            }

            #[allow(unused_variables, reason = "there may be no argument")]
            fn describe(description: &mut Description) {
                $(description.takes::<$arg>();)*
            }
        }

        impl<$($arg: FromRequest + Portable),*> SendArguments for ($($arg,)*) {}
    };
}

implement_for_arity!();
implement_for_arity!(A);
implement_for_arity!(A B);
implement_for_arity!(A B C);
implement_for_arity!(A B C D);
implement_for_arity!(A B C D E);
implement_for_arity!(A B C D E G);
implement_for_arity!(A B C D E G H);
implement_for_arity!(A B C D E G H I);
