//! A body that was collected is shared with a handler that keeps it.

use bytes::Bytes;

use super::*;

/// Purpose: a collected body is handed on without a copy; what came among other bytes is copied.
#[test]
fn not_copied() {
    let at = |bytes: &[u8]| format!("{:p} {}", bytes.as_ptr(), bytes.len());
    let app = build(Router::new().post("/", move |body: Bytes| at(&body)));
    let limits = Limits::default();
    let (mut connection, mut scratch) = (Connection::new(Instant::ZERO), Scratch::default());
    let mut routed = Routed::default();
    let next = connection.next(
        &mut Link::new(),
        &mut &b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"[..],
        &mut scratch,
        &limits,
        Instant::ZERO,
        |head| app.plan(app.find(head, &mut routed.params), &limits),
    );
    let http1::Next::Request(request) = next else { panic!("it is complete") };
    let target = app.find(&request.head, &mut routed.params);
    let disconnected = Default::default();
    let received = |body: RequestBody<'_>| {
        let request = app.request(target, &request.head, &routed, body, None, &disconnected);
        receive(resolve(call(&app, &request))).body
    };
    let content = Bytes::from(vec![b'x'; 5]);
    assert_eq!(received(RequestBody::Collected(&content)), at(&content));
    let copied = received(RequestBody::Whole(&content));
    assert!(copied != at(&content) && copied.ends_with(" 5"), "{copied}");
}
