//! Offers and answers: each parameter, several at a time, malformed ones, and what holds for all of them.

use std::format;
use std::string::ToString;
use std::vec;

use proptest::prelude::*;

use super::*;

const fn most(server: (bool, u8), client: (bool, u8)) -> Deflate {
    Deflate {
        server: Context { is_kept: server.0, window_bits: server.1 },
        client: Context { is_kept: client.0, window_bits: client.1 },
    }
}

const ALL: Deflate = most((true, 15), (true, 15));
const NOTHING_KEPT: Deflate = most((false, 15), (false, 15));

/// The answer to `offers`, one field each.
fn answer(offers: &[&str], most: &Deflate) -> Result<Option<String>, Malformed> {
    let values = offers.iter().map(|offer| offer.as_bytes());
    accept_deflate(values, most).map(|agreed| agreed.map(|agreed| agreed.answer))
}

/// Purpose: what RFC 7692 §7.1 says about each parameter of an offer, with a server that allows everything.
#[test]
fn each_parameter() {
    for (offer, expected) in [
        ("", Some("")),
        ("server_no_context_takeover", Some("server_no_context_takeover")),
        ("client_no_context_takeover", Some("client_no_context_takeover")),
        ("client_max_window_bits", Some("")),
        ("client_max_window_bits=8", Some("")),
        ("server_max_window_bits=15", Some("server_max_window_bits=15")),
        ("server_max_window_bits=\"1\\0\"", Some("server_max_window_bits=10")),
        ("server_max_window_bits=9", Some("server_max_window_bits=9")),
        ("server_max_window_bits=8", None), // The back end cannot.
        ("server_max_window_bits=7", None),
        ("server_max_window_bits=16", None),
        ("server_max_window_bits=010", None),
        ("server_max_window_bits=+9", None),
        ("server_max_window_bits", None),
        ("client_max_window_bits=16", None),
        ("client_max_window_bits=x", None),
        ("server_no_context_takeover=1", None),
        ("client_no_context_takeover=\"yes\"", None),
        ("server_no_context_takeover; server_no_context_takeover", None),
        ("client_max_window_bits; client_max_window_bits=9", None),
        ("mux", None),
    ] {
        let separator = if offer.is_empty() { "" } else { "; " };
        let offer = format!("permessage-deflate{separator}{offer}");
        let expected = expected.map(|parameters| match parameters {
            "" => "permessage-deflate".to_string(),
            parameters => format!("permessage-deflate; {parameters}"),
        });
        assert_eq!(answer(&[&offer], &ALL), Ok(expected), "{offer}");
    }
}

/// Purpose: what the server does not allow is said in its answer, and an offer under which it cannot be had is declined.
#[test]
fn what_the_server_wants() {
    let none_kept = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    assert_eq!(answer(&["permessage-deflate"], &NOTHING_KEPT), Ok(Some(none_kept.to_string())));
    let small = most((true, 10), (true, 11));
    for (offer, expected) in [
        ("permessage-deflate", None), // The client cannot be told to use a smaller window.
        (
            "permessage-deflate; client_max_window_bits",
            Some("permessage-deflate; server_max_window_bits=10; client_max_window_bits=11"),
        ),
        (
            "permessage-deflate; client_max_window_bits=10; server_max_window_bits=12",
            Some("permessage-deflate; server_max_window_bits=10"),
        ),
        // It keeps nothing, so its window costs nothing.
        (
            "permessage-deflate; client_no_context_takeover",
            Some("permessage-deflate; client_no_context_takeover; server_max_window_bits=10"),
        ),
    ] {
        let expected = expected.map(ToString::to_string);
        assert_eq!(answer(&[offer], &small), Ok(expected), "{offer}");
    }
}

/// Purpose: the first offer that can be met is accepted, whichever other extensions stand between them and however many
/// fields there are.
#[test]
fn several_offers() {
    let (first, second) = (
        "permessage-deflate; mux, x-webkit-deflate-frame; a=\"b\"",
        " ,permessage-deflate;server_max_window_bits=12 ,permessage-deflate,",
    );
    let expected = "permessage-deflate; server_max_window_bits=12".to_string();
    assert_eq!(answer(&[first, second], &ALL), Ok(Some(expected.clone())));
    assert_eq!(answer(&[&format!("{first}, {second}")], &ALL), Ok(Some(expected)));
    assert_eq!(answer(&[first], &ALL), Ok(None));
    assert_eq!(answer(&[], &ALL), Ok(None));
}

/// Purpose: a field that is not a list of extensions is told from an offer that is declined, wherever it stands.
#[test]
fn malformed_fields() {
    for value in [
        "permessage-deflate;",
        "permessage-deflate; =1",
        "permessage-deflate; a=",
        "permessage-deflate; a=\"b",
        "permessage-deflate; a=\"\"",
        "permessage-deflate; a=\"b c\"",
        "permessage-deflate; a=\"b\\",
        "permessage-deflate a",
        "permessage-deflate, \"a\"",
        "permessage-deflate; a=b=c",
        "; a",
        "perméssage",
    ] {
        assert_eq!(answer(&[value], &ALL), Err(Malformed), "{value}");
        assert_eq!(answer(&["permessage-deflate", value], &ALL), Err(Malformed), "{value}");
    }
}

/// Purpose: a client refuses an answer that the RFC does not allow.
#[test]
fn answers() {
    let read = |answer: &'static str| read_deflate_answer([answer.as_bytes()]);
    assert_eq!(read(""), Ok(None));
    assert_eq!(read("permessage-deflate"), Ok(Some(ALL)));
    let expected = most((false, 10), (false, 9));
    let full = "permessage-deflate; client_no_context_takeover; server_max_window_bits=10; server_no_context_takeover; client_max_window_bits=9";
    assert_eq!(read(full), Ok(Some(expected)));
    for answer in [
        "permessage-deflate, permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; mux",
        "mux",
    ] {
        assert_eq!(read(answer), Err(Malformed), "{answer}");
    }
}

/// A parameter, with what it asks for.
fn parameter() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just(String::new()),
        (7_u8..17).prop_map(|bits| format!("={bits}")),
        (7_u8..17).prop_map(|bits| format!(" = \"{bits}\"")),
        Just("=\"\\1\\0\"".to_string()),
        Just("=00".to_string()),
    ];
    let name = prop_oneof![
        Just("server_no_context_takeover"),
        Just("client_no_context_takeover"),
        Just("server_max_window_bits"),
        Just("client_max_window_bits"),
        Just("unknown"),
    ];
    (name, value).prop_map(|(name, value)| format!("{name}{value}"))
}

fn offer() -> impl Strategy<Value = String> {
    proptest::collection::vec(parameter(), 0..4).prop_map(|parameters| {
        let mut offer = vec![PERMESSAGE_DEFLATE.to_string()];
        offer.extend(parameters);
        offer.join(";")
    })
}

fn context() -> impl Strategy<Value = Context> {
    let bits = WINDOW_BITS_MIN..=WINDOW_BITS_MAX;
    (any::<bool>(), bits).prop_map(|(is_kept, window_bits)| Context { is_kept, window_bits })
}

proptest! {
    /// Purpose: an answer never allows more than the server does, nor more than the offer; the client reads in it what
    /// the server means; and of several offers it is the answer to the first one that is accepted alone.
    #[test]
    fn answers_keep_to_both(offers in proptest::collection::vec(offer(), 1..4), server in context(), client in context()) {
        let most = Deflate { server, client };
        let one = |offer: &String| accept_deflate([offer.as_bytes()], &most).expect("it is a list");
        let agreed = accept_deflate([offers.join(", ").as_bytes()], &most).expect("it is a list");
        prop_assert_eq!(&agreed, &offers.iter().find_map(one));
        let Some(Agreed { deflate, answer }) = agreed else { return Ok(()) };
        let offer = offers.iter().find(|offer| one(offer).is_some()).expect("one was accepted");
        let read = read_deflate_answer([answer.as_bytes()]).expect("it is valid").expect("it accepts");
        prop_assert_eq!(read.server, deflate.server);
        prop_assert_eq!(read.client.is_kept, deflate.client.is_kept);
        // A client that names a smaller window keeps to it without being told.
        prop_assert!(deflate.client.window_bits <= read.client.window_bits);
        prop_assert!(server.is_kept || !deflate.server.is_kept);
        prop_assert!(client.is_kept || !deflate.client.is_kept);
        prop_assert!(deflate.server.window_bits <= server.window_bits);
        prop_assert!(!deflate.client.is_kept || deflate.client.window_bits <= client.window_bits);
        prop_assert!(deflate.server.window_bits >= WINDOW_BITS_MIN);
        // RFC 7692 §7.1.2.2: only if the client has said that it can.
        prop_assert!(offer.contains("client_max_window_bits") || !answer.contains("client_max_window_bits"));
        prop_assert!(!offer.contains("server_no_context_takeover") || answer.contains("server_no_context_takeover"));
        prop_assert!(!offer.contains("server_max_window_bits") || answer.contains("server_max_window_bits"));
    }

    /// Purpose: any bytes are a list, or not; nothing panics.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::sample::select(&b"permessage-deflate;=,\"\\ 19"[..])], 0..60)) {
        let _ = accept_deflate([&bytes[..]], &ALL);
        let _ = read_deflate_answer([&bytes[..]]);
    }
}
