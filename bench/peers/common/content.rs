//! What the servers of a comparison read and answer as JSON. One file, so that no two of them can differ: the arena and each
//! peer include it with `#[path]`. It needs `serde`, and nothing of any framework.

use serde::{Deserialize, Serialize};

/// How long the list is.
const RECORDS: u32 = 100;

/// A record of the list, which is about 8 KiB of JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    id: u32,
    title: String,
    price: f64,
    available: bool,
}

pub(crate) fn records() -> Vec<Record> {
    let record = |id| Record {
        id,
        title: format!("Record {id} of the list that is answered"),
        price: f64::from(id) + 0.5,
        available: id % 3 != 0,
    };
    (0..RECORDS).map(record).collect()
}

/// What `POST /web/orders` reads.
#[derive(Debug, Deserialize)]
pub(crate) struct Order {
    customer: String,
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    sku: String,
    quantity: u32,
    cents: u64,
}

/// What `POST /web/orders` answers.
#[derive(Debug, Serialize)]
pub(crate) struct Receipt {
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
