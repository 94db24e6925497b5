//! What the routes of the plan `web` take and answer, the same with each peer. Included with `#[path]`.
use serde::{Deserialize, Serialize};

/// The level of gzip that Highwater has.
pub const GZIP_LEVEL: u32 = 4;
/// Smaller content is left as it is.
pub const COMPRESSED_BYTES_MIN: usize = 1024;
/// Requests of a client in a second, which no benchmark reaches.
pub const REQUESTS: u32 = 1_000_000_000;
/// The largest upload, in bytes. Frameworks differ in their defaults.
pub const UPLOAD_MAX: usize = 1 << 20;

/// A record of the list, which is about 8 KiB of JSON.
#[derive(Serialize)]
pub struct Record {
    id: u32,
    title: String,
    price: f64,
    available: bool,
}

pub fn records() -> Vec<Record> {
    let record = |id| Record {
        id,
        title: format!("Record {id} of the list that is answered"),
        price: f64::from(id) + 0.5,
        available: id % 3 != 0,
    };
    (0..100).map(record).collect()
}

#[derive(Deserialize)]
pub struct Order {
    customer: String,
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    sku: String,
    quantity: u32,
    cents: u64,
}

#[derive(Serialize)]
pub struct Receipt {
    customer: String,
    skus: Vec<String>,
    total_cents: u64,
}

impl From<Order> for Receipt {
    fn from(order: Order) -> Receipt {
        let total = order.items.iter().map(|item| u64::from(item.quantity) * item.cents);
        Receipt {
            customer: order.customer,
            total_cents: total.sum(),
            skus: order.items.into_iter().map(|item| item.sku).collect(),
        }
    }
}

/// An id of a request, as Highwater's are: 64 random bits in hexadecimal digits.
pub fn id() -> String {
    format!("{:016x}", fastrand::u64(..))
}
