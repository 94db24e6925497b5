//! Which cells can be loaded over TLS, HTTP/2 or WebSocket?

use super::draft::Draft;
use super::findings::{Check, path};
use super::{Cell, Server, TLS_PORT};
use crate::load::{CONNECTIONS_MAX, STREAMS_MAX};

pub(super) fn one_cell(check: &mut Check<'_>, cell: &Cell, draft: &Draft) {
    of_http2(check, cell);
    of_tls(check, cell, draft);
    of_web_socket(check, cell);
}

/// Streams belong to HTTP/2, on connections that are kept.
fn of_http2(check: &mut Check<'_>, cell: &Cell) {
    let (http2, streams, pipeline) = (cell.http2, cell.streams, cell.pipeline);
    check.expect(
        !http2 || pipeline == 1,
        "http2",
        "cannot be combined with pipeline, which belongs to HTTP/1.1; write streams",
    );
    check.expect(
        (1..=STREAMS_MAX).contains(&streams),
        "streams",
        format!("{streams}; write 1 to {STREAMS_MAX}"),
    );
    let keeps = !cell.close && cell.requests_per_connection == 0;
    check.expect(
        streams == 1 || (http2 && keeps),
        "streams",
        "only HTTP/2 on connections that are kept has streams; write http2 = true, or remove close and requests_per_connection",
    );
}

/// Sessions are resumed by connections that follow others.
fn of_tls(check: &mut Check<'_>, cell: &Cell, draft: &Draft) {
    check.expect(
        cell.resume || (cell.tls && cell.close),
        "resume",
        "only TLS on new connections resumes sessions; write tls = true and close = true, or remove it",
    );
    check.expect(
        !cell.tls || cell.refusal.is_none(),
        "tls",
        "cannot be combined with refusal, which is measured in plain text; remove one of them",
    );
    let has_port = |server: &&Server| {
        let words = server.command.iter().chain(server.env.values()).chain(&cell.flags);
        words.into_iter().any(|word| word.contains(TLS_PORT))
    };
    let servers = draft.server.iter().map(toml::Spanned::get_ref);
    let mut of_cell = servers.filter(|server| cell.is_for(&server.name));
    if let Some(server) = of_cell.find(|server| cell.tls && !has_port(server)) {
        check.refuse(
            "tls",
            format!(
                "server {:?} has no port for it; let it listen on 127.0.0.1:{TLS_PORT}, with the files {{tls_cert}} and {{tls_key}}",
                server.name
            ),
        );
    }
}

/// Messages go over connections that are kept, and each is echoed.
fn of_web_socket(check: &mut Check<'_>, cell: &Cell) {
    check.expect(
        cell.idle == 0 || cell.ws.is_some(),
        "idle",
        "only WebSockets are held idle; write ws = \"/PATH\", or remove it",
    );
    check.expect(
        cell.idle <= u64::from(CONNECTIONS_MAX),
        "idle",
        format!("{}; write up to {CONNECTIONS_MAX}", cell.idle),
    );
    let Some(target) = &cell.ws else { return };
    path(check, "ws", target);
    let keeps = !cell.close && cell.requests_per_connection == 0;
    check.expect(
        keeps && !cell.http2 && !cell.is_overload(),
        "ws",
        "cannot be combined with close, requests_per_connection, http2 or the fields about overload; remove them",
    );
}
