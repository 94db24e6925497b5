//! How an application is tested in process: by the worker that serves it in production, without a port.
//!
//! `cargo test -p highwater-example-small --example tested`
#![forbid(unsafe_code)]

use std::time::Duration;

use highwater::{Error, Path, Router, Server, ServerError, State};

/// Where prices come from: a service on the network in production, a constant in tests.
#[derive(Clone)]
pub struct Prices(fn(&str) -> Option<u32>);

/// Tests call this, and so does `main`.
pub fn router(prices: Prices) -> Router {
    Router::new().state(prices).get("/prices/{name}", price).timeout(Duration::from_secs(2))
}

async fn price(
    State(Prices(of)): State<Prices>,
    Path(name): Path<String>,
) -> Result<String, Error> {
    if name == "slow" {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let price = of(&name).ok_or_else(|| Error::not_found(format!("{name} has no price")))?;
    Ok(format!("{price} cents"))
}

fn main() -> Result<(), ServerError> {
    Server::new(router(Prices(|_| Some(100)))).run()
}

#[cfg(test)]
mod tests {
    use highwater::testing::Client;

    use super::*;

    fn client() -> Client {
        Client::new(router(Prices(|name| (name == "tea").then_some(250))))
    }

    #[test]
    fn prices() {
        let client = client();
        assert_eq!(client.get("/prices/tea").text(), "250 cents");
        let unknown = client.get("/prices/gold");
        assert_eq!(unknown.status, 404);
        assert!(unknown.text().contains("gold has no price"));
    }

    /// The clock is the test's: an hour takes no time, nor do the two seconds that the handler has.
    #[test]
    fn slow_prices() {
        assert_eq!(client().get("/prices/slow").status, 503);
    }
}
