//! Functions that take a WebSocket as handlers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::options::{Options, option_methods};
use super::socket::WebSocket;
use super::upgrade::WebSocketUpgrade;
use crate::app::{Callable, Finish, Response};

/// A handler that opens a WebSocket: `async fn(WebSocket, extractors…)`, with up to seven extractors.
///
/// The function is called when the client has its 101. It may return nothing, or a `Result`, so that `?` can be used.
/// [`WebSocketUpgrade`] describes which handshakes are refused, and the end of a connection.
///
/// ```
/// use highwater::{Path, Router, WebSocket, websocket};
/// use highwater::websocket::Message;
///
/// async fn echo(mut socket: WebSocket, Path(room): Path<String>) -> Result<(), highwater::Closed> {
///     socket.send(format!("welcome to {room}")).await?;
///     while let Some(message) = socket.recv().await {
///         socket.send(message).await?;
///     }
///     Ok(())
/// }
///
/// let app = Router::new().get("/echo/{room}", websocket(echo).message_max(64 * 1024));
/// # app.build().unwrap();
/// ```
pub fn websocket<F, Args>(function: F) -> WebSocketHandler<F, Args>
where
    F: SocketFunction<Args>,
{
    let options = Options::default();
    WebSocketHandler { function: Arc::new(function), options, marker: PhantomData }
}

/// A function that takes a WebSocket; made by [`websocket`].
pub struct WebSocketHandler<F, Args> {
    function: Arc<F>,
    options: Options,
    marker: PhantomData<fn(Args)>,
}

impl<F, Args> WebSocketHandler<F, Args> {
    option_methods!();
}

impl<F, Args> fmt::Debug for WebSocketHandler<F, Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketHandler").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A function of a WebSocket, and up to seven extractors.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not take a WebSocket",
    label = "this is not `async fn(WebSocket, extractors…)`",
    note = "its first argument is a `WebSocket`, up to seven extractors follow, which must be `Send`, and it returns nothing or \
            a `Result<(), E>`",
    note = "take a `WebSocketUpgrade` in an ordinary handler to decide first whether there is to be a WebSocket"
)]
pub trait SocketFunction<Args>: Send + Sync + 'static {
    /// What it returns.
    type Future: Future<Output: Finish> + 'static;

    /// Calls it.
    #[doc(hidden)]
    fn call(&self, socket: WebSocket, args: Args) -> Self::Future;
}

macro_rules! implement_for_arity {
    ($($arg:ident)*) => {
        impl<F, Fut, $($arg),*> SocketFunction<($($arg,)*)> for F
        where
            F: Fn(WebSocket, $($arg),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output: Finish> + 'static,
        {
            type Future = Fut;

            #[allow(non_snake_case, reason = "a type parameter's name is the variable's, too")]
            fn call(&self, socket: WebSocket, ($($arg,)*): ($($arg,)*)) -> Fut {
                self(socket, $($arg),*)
            }
        }

        /// It is a handler as a function of the upgrade and its extractors is one.
        #[diagnostic::do_not_recommend]
        impl<F, $($arg),*> Callable<(WebSocketUpgrade, $($arg,)*)>
            for WebSocketHandler<F, ($($arg,)*)>
        where
            F: SocketFunction<($($arg,)*)>,
            $($arg: Send + 'static,)*
        {
            type Output = Response;

            #[allow(non_snake_case, reason = "a type parameter's name is the variable's, too")]
            fn call(
                &self,
                (mut upgrade, $($arg,)*): (WebSocketUpgrade, $($arg,)*),
            ) -> Response {
                upgrade.options = self.options.clone();
                let function = Arc::clone(&self.function);
                upgrade.on_upgrade(move |socket| function.call(socket, ($($arg,)*)))
            }
        }
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
