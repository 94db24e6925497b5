//! Random lists of layers against a model of what a list of layers is: each around the next, the handler
//! within all.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use highwater_core::prng::Prng;

use super::*;

const LISTS: u64 = 1_000;
const LAYERS_MAX: u64 = 7;

/// Which parts a layer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts(u8);

impl Parts {
    const ON_REQUEST: Parts = Parts(1);
    const AMEND: Parts = Parts(2);
    const ON_RESPONSE: Parts = Parts(4);
    const AROUND: Parts = Parts(8);
    const EVERYWHERE: Parts = Parts(16);

    fn has(self, parts: Parts) -> bool {
        self.0 & parts.0 != 0
    }

    fn and(self, parts: Parts) -> Parts {
        Parts(self.0 | parts.0)
    }
}

/// What a layer does besides noting that it was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    /// Answers in `on_request`, or `around` without going on.
    Answer,
    /// Panics in this part, or before it goes on in `around`.
    Panic(Parts),
    /// Panics in `around` on the way out.
    PanicAfter,
}

type Log = Arc<Mutex<Vec<String>>>;

#[derive(Clone)]
struct Noted {
    number: usize,
    parts: Parts,
    act: Act,
    log: Log,
}

impl Noted {
    fn random(number: usize, prng: &mut Prng, log: &Log) -> Self {
        let mut parts = Parts::default();
        for part in [Parts::ON_REQUEST, Parts::AMEND, Parts::ON_RESPONSE, Parts::AROUND] {
            if prng.below(2) == 0 {
                parts = parts.and(part);
            }
        }
        if !parts.has(Parts::AROUND) && prng.below(2) == 0 {
            parts = parts.and(Parts::EVERYWHERE);
        }
        let act = match prng.below(16) {
            0 => Act::Answer,
            1 => Act::Panic(Parts::ON_REQUEST),
            2 => Act::Panic(Parts::AROUND),
            3 => Act::Panic(Parts::ON_RESPONSE),
            4 => Act::PanicAfter,
            _ => Act::Nothing,
        };
        Noted { number, parts, act, log: log.clone() }
    }

    fn note(&self, part: &str, response: Option<&Response>) {
        let status = response.map_or(0, |response| response.status().as_u16());
        self.log.lock().unwrap().push(format!("{}{part}{status}", self.number));
    }

    fn panics_in(&self, part: Parts) {
        if self.act == Act::Panic(part) {
            panic!("on purpose");
        }
    }
}

impl From<Noted> for Layer {
    fn from(noted: Noted) -> Layer {
        let mut layer = Layer::new();
        let parts = noted.parts;
        if parts.has(Parts::ON_REQUEST) {
            let noted = noted.clone();
            layer = layer.on_request(move |_: &Request<'_>| noted.on_request());
        }
        if parts.has(Parts::AMEND) {
            let noted = noted.clone();
            layer = layer.amend(move |response| noted.note("amend", Some(response)));
        }
        if parts.has(Parts::ON_RESPONSE) {
            let noted = noted.clone();
            layer = layer.on_response(move |_: &Request<'_>, response: &mut Response| {
                noted.note("response", Some(response));
                noted.panics_in(Parts::ON_RESPONSE);
            });
        }
        if parts.has(Parts::AROUND) {
            layer = layer.around(move |request, next| noted.clone().around(request, next));
        }
        if parts.has(Parts::EVERYWHERE) { layer.everywhere() } else { layer }
    }
}

impl Noted {
    fn on_request(&self) -> ControlFlow<Response> {
        self.note("request", None);
        self.panics_in(Parts::ON_REQUEST);
        match self.act {
            Act::Answer => ControlFlow::Break(Response::new(StatusCode::ACCEPTED)),
            _ => ControlFlow::Continue(()),
        }
    }

    async fn around(self, request: OwnedRequest, next: Next) -> Response {
        self.note("in", None);
        self.panics_in(Parts::AROUND);
        if self.act == Act::Answer {
            return Response::new(StatusCode::ACCEPTED);
        }
        let response = next.run(request).await;
        self.note("out", Some(&response));
        assert!(self.act != Act::PanicAfter, "on purpose");
        response
    }
}

/// What is to be noted for a request that passes `layers`, and its status.
fn model(layers: &[Noted], log: &mut Vec<String>) -> u16 {
    let Some((layer, within)) = layers.split_first() else {
        log.push("handler".into());
        return 200;
    };
    let Noted { number, parts, act, .. } = layer;
    if parts.has(Parts::ON_REQUEST) {
        log.push(format!("{number}request0"));
        match act {
            Act::Answer => return 202,
            Act::Panic(Parts::ON_REQUEST) => return 500,
            _ => {}
        }
    }
    let is_around = parts.has(Parts::AROUND);
    if is_around {
        log.push(format!("{number}in0"));
    }
    let mut status = match act {
        Act::Answer if is_around => 202,
        Act::Panic(Parts::AROUND) if is_around => 500,
        _ => {
            let status = model(within, log);
            if is_around {
                log.push(format!("{number}out{status}"));
            }
            if is_around && *act == Act::PanicAfter { 500 } else { status }
        }
    };
    if parts.has(Parts::AMEND) {
        log.push(format!("{number}amend{status}"));
    }
    if parts.has(Parts::ON_RESPONSE) {
        log.push(format!("{number}response{status}"));
        if *act == Act::Panic(Parts::ON_RESPONSE) {
            status = 500;
        }
    }
    status
}

/// Purpose: whatever parts the layers of a list have, wherever one answers or panics, however they are spread
/// over nested routers and however the handler is run, a request passes them as an onion. A fixed answer
/// passes those that cover everything.
#[test]
fn lists_of_layers_are_onions() {
    for seed in 0..LISTS {
        let (mut prng, log) = (Prng::from_seed(seed), Log::default());
        let layers: Vec<Noted> = (0..prng.below(LAYERS_MAX + 1) as usize)
            .map(|number| Noted::random(number, &mut prng, &log))
            .collect();
        let cut = prng.below(layers.len() as u64 + 1) as usize;
        let covered = |layers: &[Noted]| {
            layers.iter().fold(Router::new(), |router, layer| router.layer(layer.clone()))
        };
        let note = || {
            let log = log.clone();
            move || log.lock().unwrap().push("handler".into())
        };
        let (later, noted) = (note(), log.clone());
        let routes = covered(&layers[cut..])
            .get("/inline", note())
            .get("/async", move || {
                let later = later.clone();
                async move { later() }
            })
            .get("/blocking", blocking(note()))
            .get("/fixed", fixed("x"));
        let app = build(covered(&layers[..cut]).nest("/in", routes));
        let check = |path: &str, status: u16, expected: &[String]| {
            noted.lock().unwrap().clear();
            let received = get(&app, path).status;
            let noted = noted.lock().unwrap().clone();
            assert_eq!((received, &noted[..]), (status, expected), "seed {seed}, {path}");
        };
        let mut expected = Vec::new();
        let status = model(&layers, &mut expected);
        for path in ["/in/inline", "/in/async", "/in/blocking"] {
            check(path, status, &expected);
        }
        let everywhere: Vec<Noted> =
            layers.iter().filter(|layer| layer.parts.has(Parts::EVERYWHERE)).cloned().collect();
        let is_constant =
            |layer: &Noted| !layer.parts.has(Parts::ON_REQUEST.and(Parts::ON_RESPONSE));
        match everywhere.iter().all(is_constant) {
            true => check("/in/fixed", 200, &[]),
            false => {
                let mut expected = Vec::new();
                let status = model(&everywhere, &mut expected);
                expected.retain(|entry| entry != "handler");
                check("/in/fixed", status, &expected);
            }
        }
    }
}
