//! Payments, which are made once however often a client sends them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use garde::Validate;
use highwater::journal::{Directory, Options};
use highwater::layers::idempotency;
use highwater::openapi::api;
use highwater::{Created, Json, Router, Valid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// For how long a client may repeat a payment.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// `/payments`. Its keys are in the journal in `keys`, or in memory.
pub(crate) fn routes(keys: Option<Directory>) -> Router {
    let mut once = idempotency(DAY).required();
    if let Some(keys) = keys {
        let mut options = Options::default();
        options.bytes_max = Some(1 << 30);
        once = once.journal(keys, options);
    }
    Router::new().layer(once).post("/payments", api(pay).summary("Pays, once for each key"))
}

#[derive(Deserialize, JsonSchema, Validate)]
struct Payment {
    #[garde(length(chars, min = 1, max = 200))]
    to: String,
    #[garde(range(min = 1, max = 100_000_000))]
    cents: u32,
}

#[derive(Serialize, JsonSchema)]
struct Paid {
    /// Another one for each payment.
    id: String,
    to: String,
    cents: u32,
}

fn pay(Valid(Json(Payment { to, cents })): Valid<Json<Payment>>) -> Created<Json<Paid>> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    Created(Json(Paid { id: format!("{:x}-{number}", now.as_micros()), to, cents }))
}
